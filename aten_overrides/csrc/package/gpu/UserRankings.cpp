#include "UserRankings.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace aten_overrides::gpu {
namespace {

// Those that were set stay, as a call under way may still read them; settings are few.
template <class Rankings>
class Current {
 public:
  std::string set(const int64_t* numbers, int64_t count) {
    if (numbers == nullptr) {
      current_.store(nullptr, std::memory_order_release);
      return "";
    }
    auto made = std::make_unique<Rankings>();
    std::string wrong = rankings::read(*made, numbers, count);
    if (wrong.empty()) {
      const std::lock_guard<std::mutex> lock(mutex_);
      current_.store(made.get(), std::memory_order_release);
      kept_.push_back(std::move(made));
    }
    return wrong;
  }

  const Rankings* get() const {
    return current_.load(std::memory_order_acquire);
  }

 private:
  std::atomic<const Rankings*> current_{nullptr};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Rankings>> kept_;
};

Current<rankings::EighRankings> of_eigh;
Current<rankings::LuSolveRankings> of_lu_solve;

}  // namespace

std::string set_rankings(int32_t op, const int64_t* numbers, int64_t count) {
  switch (op) {
    case rankings::kEighOp:
      return of_eigh.set(numbers, count);
    case rankings::kLuSolveOp:
      return of_lu_solve.set(numbers, count);
    default:
      return "operation " + std::to_string(op) + " has no rankings";
  }
}

at::native::eigh_choice::Measured measured_eigh() {
  return rankings::measured(of_eigh.get());
}

lu_solve::Measured measured_lu_solve() {
  return rankings::measured(of_lu_solve.get());
}

}  // namespace aten_overrides::gpu
