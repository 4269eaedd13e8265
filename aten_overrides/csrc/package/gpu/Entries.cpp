#include "Entries.h"

#include "Eigh.h"
#include "Kernels.h"
#include "Loops.h"
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

void describe(int index, void* ours, uint32_t bit) {
  entries[index].ours = ours;
  entries[index].bit = bit;
}

const bool described = [] {
  describe(k_lu_factor, reinterpret_cast<void*>(&lu_factor_kernel), kLuFactorBit);
  describe(k_lu_solve, reinterpret_cast<void*>(&lu_solve_kernel), kLuSolveBit);
  describe(k_linalg_eigh, reinterpret_cast<void*>(&eigh_kernel), kEighBit);
  describe(k_geqrf, reinterpret_cast<void*>(&geqrf_kernel), kGeqrfBit);
  describe(k_orgqr, reinterpret_cast<void*>(&orgqr_kernel), kOrgqrBit);
  describe(k_ormqr, reinterpret_cast<void*>(&ormqr_kernel), kOrmqrBit);
  describe(k_cholesky, reinterpret_cast<void*>(&cholesky_kernel), kCholeskyBit);
  describe(
      k_cholesky_inverse, reinterpret_cast<void*>(&cholesky_inverse_kernel), kCholeskyInverseBit);
  describe(k_ldl_factor, reinterpret_cast<void*>(&ldl_factor_kernel), kLdlFactorBit);
  return true;
}();

// ---- cholesky_solve ----

// The one entry that is no dispatch stub: torch takes the function from a linalg library and tells
// nobody which one it has. So it is the wheel's, found by name, that is given back, whoever
// registered another one meanwhile.
struct Helper {
  // at::native::cuda::detail::LinalgDispatch, which no installed header declares.
  struct Dispatch {
    cholesky_solve_fn cholesky_solve_helper;
  };
  using Register = void (*)(const Dispatch&);

  Register set = nullptr;
  std::atomic<cholesky_solve_fn> stock{nullptr};
  std::atomic<bool> ours{false};

  // Once the wheel's library was loaded. False: this torch does it in some other way.
  bool found() {
    if (stock.load() == nullptr) {
      set = reinterpret_cast<Register>(wheel_symbol(
          "_ZN2at6native4cuda6detail22registerLinalgDispatchERKNS2_14LinalgDispatchE"));
      const auto wheels = reinterpret_cast<cholesky_solve_fn>(wheel_symbol(
          "_ZN2at6native11lazy_linalg27_cholesky_solve_helper_cudaERKNS_6TensorES4_b"));
      if (set != nullptr) {
        stock.store(wheels);
      }
    }
    return stock.load() != nullptr;
  }

  void install(bool wanted) {
    if (wanted != ours.load()) {
      set({wanted ? &cholesky_solve_kernel : stock.load()});
      ours.store(wanted);
    }
  }
};
Helper helper;

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
  if ((bits & kCholeskySolveBit) != 0 && !helper.found()) {
    return "torch has no function for cholesky_solve that could be replaced; leave it out of only=";
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
  helper.install((bits & kCholeskySolveBit) != 0);
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
  helper.install(false);
  return changed;
}

uint32_t installed_entries() {
  uint32_t bits = 0;
  for (Entry& each : entries) {
    if (each.ours != nullptr && get(each.slot) == each.ours) {
      bits |= each.bit;
    }
  }
  return helper.ours.load() ? bits | kCholeskySolveBit : bits;
}

EntryView entry_at(int index) {
  if (index < 0 || index >= kEntries) {
    return {nullptr, nullptr, nullptr, nullptr};
  }
  const Entry& each = entries[index];
  return {each.name, get(each.slot), each.saved.load(), each.ours};
}

#define DEFINE_STOCK(name, entry)                                                     \
  at::native::entry##_fn stock_##name() {                                             \
    return reinterpret_cast<at::native::entry##_fn>(entries[k_##entry].saved.load()); \
  }
DEFINE_STOCK(lu_factor, lu_factor)
DEFINE_STOCK(lu_solve, lu_solve)
DEFINE_STOCK(eigh, linalg_eigh)
DEFINE_STOCK(geqrf, geqrf)
DEFINE_STOCK(orgqr, orgqr)
DEFINE_STOCK(ormqr, ormqr)
DEFINE_STOCK(cholesky, cholesky)
DEFINE_STOCK(cholesky_inverse, cholesky_inverse)
DEFINE_STOCK(ldl_factor, ldl_factor)
#undef DEFINE_STOCK

cholesky_solve_fn stock_cholesky_solve() {
  return helper.stock.load();
}

}  // namespace aten_overrides::gpu
