#include "RankingsApi.h"

#include <cstdio>
#include <exception>
#include <memory>

#include "RankingsHandle.h"

namespace rankings = aten_overrides::rankings;

namespace {

std::string read(aten_overrides_select_rankings& into, const int64_t* numbers, int64_t count) {
  switch (into.op) {
    case rankings::kEighOp:
      return rankings::read(into.eigh, numbers, count);
    case rankings::kLuSolveOp:
      return rankings::read(into.lu_solve, numbers, count);
    default:
      return "operation " + std::to_string(into.op) + " has no rankings";
  }
}

}  // namespace

aten_overrides_select_rankings* aten_overrides_select_rankings_new(
    int32_t op, const int64_t* numbers, int64_t count, char* why, int32_t why_size) noexcept {
  const auto refuse = [&](const char* reason) -> aten_overrides_select_rankings* {
    if (why != nullptr && why_size > 0) {
      std::snprintf(why, static_cast<std::size_t>(why_size), "%s", reason);
    }
    return nullptr;
  };
  try {
    auto made = std::make_unique<aten_overrides_select_rankings>();
    made->op = op;
    const std::string wrong = read(*made, numbers, count);
    return wrong.empty() ? made.release() : refuse(wrong.c_str());
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
}

void aten_overrides_select_rankings_free(aten_overrides_select_rankings* rankings) noexcept {
  delete rankings;
}
