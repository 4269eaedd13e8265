#include "Entries.h"

#include "Eigh.h"
#include "Kernels.h"
#include "Stub.h"
#include "Wheel.h"

#include <ATen/native/BatchLinearAlgebra.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace aten_overrides::gpu {
namespace {

// Other threads read the word while we write it.
void* get(void** slot) {
  return __atomic_load_n(slot, __ATOMIC_ACQUIRE);
}

void put(void** slot, void* function) {
  __atomic_store_n(slot, function, __ATOMIC_RELEASE);
}

// ---- The list ----

#define FOR_EACH_STUB(_) \
  _(cholesky)            \
  _(cholesky_inverse)    \
  _(lu_factor)           \
  _(ldl_factor)          \
  _(ldl_solve)           \
  _(triangular_solve)    \
  _(orgqr)               \
  _(ormqr)               \
  _(geqrf)               \
  _(linalg_eigh)         \
  _(linalg_eig)          \
  _(svd)                 \
  _(lu_solve)            \
  _(lstsq)

enum Index : int {
#define ENUMERATE(name) k_##name,
  FOR_EACH_STUB(ENUMERATE)
#undef ENUMERATE
      kEntries
};

struct Entry {
  const char* name;
  void** slot;
  void* guard;           // our wrapper for the time before the wheel's library is loaded
  void* lazy = nullptr;  // torch's wrapper, while the guard stands before it
  void* ours = nullptr;
  std::atomic<void*> saved{nullptr};  // the wheel's function, once ours has taken its place
  uint32_t bit = 0;
};

Entry& entry(int index);

// ---- Guards ----

// Guards loading. Not held while an entry's function runs.
std::mutex load_mutex;
std::string linalg_path;  // written before the first guard is in place
bool has_linalg_path = false;
bool loaded = false;

const char* path_or_null() {
  return has_linalg_path ? linalg_path.c_str() : nullptr;
}

// Loads the wheel's library, whose constructors register its functions. Returns what failed.
std::string load_once() {
  const std::lock_guard<std::mutex> lock(load_mutex);
  if (!loaded) {
    std::string failure = load_wheel_linalg(path_or_null());
    if (!failure.empty()) {
      return failure;
    }
    loaded = true;
  }
  return {};
}

// torch's lazy wrappers load the library and then call the entry again; one counter allows one of
// them to do so once, so a second thread that has entered one meanwhile gets an error (upstream
// 90613). These do the same and can be entered any number of times.
template <int index, typename Fn>
struct Guard;

template <int index, typename Result, typename... Args>
struct Guard<index, Result (*)(Args...)> {
  using Fn = Result (*)(Args...);

  static Result call(Args... args) {
    const std::string failure = load_once();
    TORCH_CHECK(failure.empty(), failure);
    void* now = get(entry(index).slot);
    if (now == entry(index).guard) {
      now = entry(index).lazy;  // the library has no function of its own for this entry
    }
    return reinterpret_cast<Fn>(now)(std::forward<Args>(args)...);
  }
};

Entry entries[] = {
#define DEFINE_ENTRY(name)             \
  {#name,                              \
   cuda_slot(at::native::name##_stub), \
   reinterpret_cast<void*>(&Guard<k_##name, at::native::name##_fn>::call)},
    FOR_EACH_STUB(DEFINE_ENTRY)
#undef DEFINE_ENTRY
};

Entry& entry(int index) {
  return entries[index];
}

const bool described = [] {
  entries[k_lu_factor].ours = reinterpret_cast<void*>(&lu_factor_kernel);
  entries[k_lu_factor].bit = kLuFactorBit;
  entries[k_lu_solve].ours = reinterpret_cast<void*>(&lu_solve_kernel);
  entries[k_lu_solve].bit = kLuSolveBit;
  entries[k_linalg_eigh].ours = reinterpret_cast<void*>(&eigh_kernel);
  entries[k_linalg_eigh].bit = kEighBit;
  return true;
}();

// ---- Installing ----

std::mutex install_mutex;

void remove_guards() {
  for (Entry& each : entries) {
    void* guard = each.guard;
    __atomic_compare_exchange_n(
        each.slot, &guard, each.lazy, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
}

void guard_locked(const char* linalg) {
  {
    const std::lock_guard<std::mutex> lock(load_mutex);
    if (!loaded && !has_linalg_path && linalg != nullptr) {
      linalg_path = linalg;
      has_linalg_path = true;
    }
    if (loaded || linalg == nullptr) {
      return;
    }
  }
  if (wheel_linalg_loaded(linalg)) {
    return;
  }
  for (Entry& each : entries) {
    void* lazy = get(each.slot);
    if (lazy == nullptr || lazy == each.guard) {
      continue;
    }
    each.lazy = lazy;
    // Fails if torch itself has loaded the library since: then the entry is no longer lazy.
    __atomic_compare_exchange_n(
        each.slot, &lazy, each.guard, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
}

}  // namespace

void guard_entries(const char* linalg) {
  const std::lock_guard<std::mutex> lock(install_mutex);
  guard_locked(linalg);
}

std::string install_entries(const char* linalg, uint32_t bits) {
  const std::lock_guard<std::mutex> lock(install_mutex);
  guard_locked(linalg);
  std::string failure = load_once();
  remove_guards();  // of entries that the library has no function for, or of all if it does not
                    // load
  if (!failure.empty()) {
    return failure;
  }
  for (const Entry& each : entries) {
    if ((each.bit & bits) != 0 && get(each.slot) == nullptr) {
      return std::string("torch has no CUDA function for ") + each.name;
    }
  }
  for (Entry& each : entries) {
    if (each.ours == nullptr) {
      continue;
    }
    void* now = get(each.slot);
    const bool wanted = (each.bit & bits) != 0;
    if (wanted && now != each.ours) {
      // What is there now is the wheel's, also when it has taken the entry back since.
      each.saved.store(now);
      put(each.slot, each.ours);
    } else if (!wanted && now == each.ours) {
      put(each.slot, each.saved.load());
    }
  }
  return {};
}

uint32_t restore_entries() {
  const std::lock_guard<std::mutex> lock(install_mutex);
  remove_guards();
  uint32_t changed = 0;
  for (Entry& each : entries) {
    if (each.ours == nullptr || each.saved.load() == nullptr) {
      continue;
    }
    void* now = get(each.slot);
    if (now == each.ours) {
      put(each.slot, each.saved.load());
    } else if (now != each.saved.load()) {
      changed |= each.bit;
    }
  }
  return changed;
}

uint32_t installed_entries() {
  uint32_t bits = 0;
  for (Entry& each : entries) {
    if (each.ours != nullptr && get(each.slot) == each.ours) {
      bits |= each.bit;
    }
  }
  return bits;
}

EntryView entry_at(int index) {
  if (index < 0 || index >= kEntries) {
    return {nullptr, nullptr, nullptr, nullptr};
  }
  const Entry& each = entries[index];
  return {each.name, get(each.slot), each.saved.load(), each.ours};
}

at::native::lu_factor_fn stock_lu_factor() {
  return reinterpret_cast<at::native::lu_factor_fn>(entries[k_lu_factor].saved.load());
}

at::native::lu_solve_fn stock_lu_solve() {
  return reinterpret_cast<at::native::lu_solve_fn>(entries[k_lu_solve].saved.load());
}

at::native::linalg_eigh_fn stock_eigh() {
  return reinterpret_cast<at::native::linalg_eigh_fn>(entries[k_linalg_eigh].saved.load());
}

}  // namespace aten_overrides::gpu
