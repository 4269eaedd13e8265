#include <ATen/native/cuda/linalg/native/BatchedLU.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include <ATen/native/cuda/linalg/native/BlockedLU.h>

namespace at::native::batched_native {

namespace {

constexpr int kWarpLimit = 32;
constexpr int64_t kMaxItems = 65535;  // cuBLAS's limit for a batch

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument(std::string(kLu) + ": " + what);
}

template <typename T>
int64_t map_elements(const LuProblem& problem, const LuPlan& plan) {
  if (plan.route != LuRoute::Blocked || !problem.pivot) {
    return 0;
  }
  return BlockedLU<T>::map_elements(
      static_cast<int>(problem.m), static_cast<int>(problem.n), plan, shared_limit());
}

void check(const LuProblem& p, int64_t lda, int64_t stride, int64_t pivot_stride) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (p.batch < 0 || p.m < 0 || p.n < 0 || p.m >= most || p.n >= most || p.batch >= most) {
    refuse(
        "batch, rows and columns must lie in 0.." + std::to_string(most - 1) + ", got " +
        std::to_string(p.batch) + ", " + std::to_string(p.m) + ", " + std::to_string(p.n));
  }
  if (lda < std::max<int64_t>(1, p.m) || lda > most) {
    refuse("lda must be at least the row count, got " + std::to_string(lda));
  }
  const int64_t steps = std::min(p.m, p.n);
  if (p.batch > 1 && (stride < lda * (p.n - 1) + p.m || pivot_stride < steps)) {
    refuse(
        "matrices or pivots overlap: stride " + std::to_string(stride) + ", pivot stride " +
        std::to_string(pivot_stride));
  }
}

// These three as measured on an H200 at n 64..2048 and batch 1..4096 (other types than float32: n
// 64..1024, batch 1, 64 and 512); see NOTES.md. `room`: as in LuPlan.

// Columns up to which one block per matrix, if it holds the matrix, beats panels and products.
int block_limit(Scalar scalar, int64_t batch, int64_t room) {
  if (scalar == Scalar::Float && batch <= room) {
    return 224;
  }
  return batch <= 2 * room ? 128 : (scalar == Scalar::Float ? 96 : 64);
}

int leaf_choice(Scalar scalar, int64_t steps, int64_t batch, int64_t room) {
  return scalar == Scalar::Float && batch <= 2 * room && (batch >= 32 || steps <= 256) ? 128 : 64;
}

int outer_choice(Scalar scalar, int64_t steps, int64_t batch) {
  if (steps <= 128) {
    return 128;
  }
  if (batch < 32 || steps <= 192 || (steps <= 256 && batch < 128)) {
    return 64;
  }
  // Only float32 gains from products deeper than 128: for the others solving 256 rows costs more.
  return scalar == Scalar::Float && steps >= 896 ? 256 : 128;
}

// The most blocks that share a panel. Larger batches lose by clusters of fewer: 0.4 to 0.9 times
// the speed at 32 and 64 matrices of 1024 rows, float32; other types are even.
constexpr int kSpread = 8;

}  // namespace

LuPlan lu_plan(const LuProblem& problem) {
  const int64_t steps = std::min(problem.m, problem.n);
  if (problem.batch == 0 || steps == 0) {
    return {LuRoute::None, 0, 0, 1, 1};
  }
  if (problem.m <= kWarpLimit && problem.n <= kWarpLimit) {
    return {LuRoute::Warp, 0, 0, 1, 1};
  }
  const int m = static_cast<int>(problem.m);
  const int room = device_attribute(cudaDevAttrMultiProcessorCount);
  const bool whole = problem.n <= block_limit(problem.scalar, problem.batch, room) &&
                     with_scalar(problem.scalar, kLu, [&](auto x) {
                       const int n = static_cast<int>(problem.n);
                       return panel_width<decltype(x)>(m, n, shared_limit()) == n;
                     });
  if (whole) {
    return {LuRoute::Block, 0, 0, 1, room};
  }
  // Above 512 rows a panel takes a multiprocessor's registers alone.
  const int resident = problem.batch > 4 * room && m > 256 && m <= 512 ? 2 : 1;
  const int leaf = leaf_choice(problem.scalar, steps, problem.batch, room);
  const int outer = std::max(leaf, outer_choice(problem.scalar, steps, problem.batch));
  return {LuRoute::Blocked, leaf, outer, resident, room, problem.batch * kSpread <= room};
}

size_t lu_workspace(const LuProblem& problem, const LuPlan& plan) {
  return with_scalar(problem.scalar, kLu, [&](auto x) {
    using T = decltype(x);
    const size_t each = map_elements<T>(problem, plan) * sizeof(int32_t);
    const size_t batch = static_cast<size_t>(problem.batch);
    const size_t input = batch * problem.m * problem.n * sizeof(T);
    const size_t allowed = std::max(input / 10 + (size_t{1} << 20), each);
    return std::min(each * batch, each == 0 ? 0 : allowed / each * each);
  });
}

void lu_factor(
    const LuProblem& problem,
    const LuPlan& plan,
    void* a,
    int64_t lda,
    int64_t stride,
    int32_t* pivots,
    int64_t pivot_stride,
    int32_t* info,
    void* workspace,
    size_t workspace_bytes,
    cublasHandle_t handle,
    cudaStream_t stream) {
  check(problem, lda, stride, pivot_stride);
  if (problem.batch == 0) {
    return;
  }
  if (problem.m == 0 || problem.n == 0) {
    C10_CUDA_CHECK(cudaMemsetAsync(info, 0, problem.batch * sizeof(int32_t), stream));
    return;
  }
  with_scalar(problem.scalar, kLu, [&](auto x) {
    using T = decltype(x);
    WholeMatrices<T> whole{
        static_cast<T*>(a),
        lda,
        stride,
        pivots,
        pivot_stride,
        info,
        problem.batch,
        static_cast<int>(problem.m),
        static_cast<int>(problem.n),
        problem.pivot};
    if (plan.route == LuRoute::Warp) {
      launch_warp_lu(whole, stream);
      return;
    }
    if (plan.route == LuRoute::Block) {
      Panel<T> panel{};
      panel.whole = whole;
      panel.n = whole.n;
      launch_panel_lu(panel, many_panels(plan, whole.m, whole.batch), stream);
      return;
    }
    const HandleModes modes(handle, kLu);
    const int64_t each = map_elements<T>(problem, plan);
    const int64_t held = static_cast<int64_t>(workspace_bytes / sizeof(int32_t));
    const int64_t chunk =
        std::min(kMaxItems, each == 0 ? problem.batch : std::min(problem.batch, held / each));
    if (chunk == 0) {
      refuse(
          "workspace of " + std::to_string(workspace_bytes) + " bytes, one matrix needs " +
          std::to_string(each * sizeof(int32_t)));
    }
    for (int64_t done = 0; done < problem.batch; done += chunk) {
      WholeMatrices<T> part = whole;
      part.a += done * stride;
      part.pivots += done * pivot_stride;
      part.info += done;
      part.batch = std::min(chunk, problem.batch - done);
      BlockedLU<T>(
          part, plan, static_cast<int32_t*>(workspace), each, shared_limit(), handle, stream)
          .run();
    }
  });
}

}  // namespace at::native::batched_native
