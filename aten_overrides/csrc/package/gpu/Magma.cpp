#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include "Magma.h"

#include "Plan.h"

#include <ATen/native/LinearAlgebraUtils.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <string>

namespace aten_overrides::gpu {
namespace {

constexpr const char* kFailed = "MAGMA raised an error, which was shown as a warning";
constexpr const char* kNoMemory = "MAGMA had too little memory";

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// What is wrong with the device; empty if nothing is. An illegal access, for one, is there to stay.
std::string device_failure() {
  if (c10::cuda::device_count() == 0) {
    return {};  // nor was there one before
  }
  try {
    c10::cuda::getCurrentCUDAStream().synchronize();
  } catch (const c10::Error& error) {
    return first_line(error.what_without_backtrace());
  }
  return {};
}

}  // namespace

MagmaCall::MagmaCall(int op, const at::Tensor& target) : op_(op), target_(target) {
  try {
    before_ = target.clone();
  } catch (const c10::OutOfMemoryError&) {
    // MAGMA itself may well have enough.
  }
}

const char* MagmaCall::run(const std::function<void()>& call) {
  std::string said;
  try {
    call();
    return nullptr;
  } catch (const c10::Error& error) {
    said = first_line(error.what_without_backtrace());
  } catch (const std::exception& error) {
    said = first_line(error.what());
  }
  C10_CUDA_CLEAR_ERROR();
  const bool memory = said.find("out of memory") != std::string::npos;
  const std::string what = c10::str(
      "linalg.",
      op_name(op_),
      ": MAGMA failed for ",
      at::native::batchCount(target_),
      " matrices ",
      target_.size(-2),
      " x ",
      target_.size(-1),
      " (",
      said,
      ")");
  const std::string device = device_failure();
  TORCH_CHECK(
      device.empty(),
      what,
      " and left the GPU unusable for this process (",
      device,
      "). Start it again without MAGMA: aten_overrides.preferred_linalg_library(\"cusolver\") or "
      "ATEN_OVERRIDES_PREFER=cusolver");
  if (!memory) {
    retire_magma();
  }
  TORCH_CHECK(
      before_.defined(),
      what,
      ", and there was no memory for the copy that another back end would start from. Free memory, "
      "or keep MAGMA out: aten_overrides.preferred_linalg_library(\"cusolver\")");
  target_.copy_(before_);
  TORCH_WARN(
      what,
      "; another back end does this call",
      memory ? "."
             : ", and MAGMA is not chosen any more in this process; aten_overrides.enable() allows "
               "it again.");
  return memory ? kNoMemory : kFailed;
}

}  // namespace aten_overrides::gpu
