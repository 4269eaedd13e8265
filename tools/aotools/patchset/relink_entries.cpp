// Linked last into a relinked linalg library. Loading a linalg library lets its static constructors
// take all 15 CUDA entries; this file notes who had them before, and afterwards gives back every
// entry that is not in ATEN_LINALG_PATCHED_ENTRIES (a comma list, e.g. "lu_factor,lu_solve").
//
// The build keeps a DT_NEEDED on the wheel's own library, so that it is loaded and has registered
// itself before any constructor here runs, and so that torch's lazy loader finds it present: its
// wrappers, which may run only once, are out of the way by then.
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/cuda/linalg/BatchLinearAlgebraLib.h>

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#if !defined(BUILD_LAZY_CUDA_LINALG) || !defined(ATEN_LINALG_PATCHED_ENTRIES)
#error "compile with -DBUILD_LAZY_CUDA_LINALG and -DATEN_LINALG_PATCHED_ENTRIES=\"...\""
#endif

#define ATEN_LINALG_PATCHED_API extern "C" __attribute__((visibility("default")))

namespace at::native {

namespace lazy_linalg {
Tensor _cholesky_solve_helper_cuda(const Tensor& self, const Tensor& A, bool upper);
}

namespace {
namespace linalg_patched {

// DispatchStub keeps its CUDA function in word 1 and offers a setter but no getter.
static_assert(offsetof(DispatchStubImpl, cuda_dispatch_ptr) == sizeof(void*));

struct Entry {
  const char* name;
  void** slot;  // where torch keeps the function it calls; null: not known
  void* wheel;  // what was there before this library's constructors
  void* ours;
  bool chosen;  // ours is wanted
};

using HelperFn = decltype(cuda::detail::LinalgDispatch::cholesky_solve_helper);

#define STUB_ENTRY(name)                                                       \
  Entry {                                                                      \
    #name, reinterpret_cast<void**>(&name##_stub) + 1, nullptr, nullptr, false \
  }

Entry entries[] = {
    STUB_ENTRY(cholesky),
    STUB_ENTRY(cholesky_inverse),
    STUB_ENTRY(lu_factor),
    STUB_ENTRY(ldl_factor),
    STUB_ENTRY(ldl_solve),
    STUB_ENTRY(triangular_solve),
    STUB_ENTRY(orgqr),
    STUB_ENTRY(ormqr),
    STUB_ENTRY(geqrf),
    STUB_ENTRY(linalg_eigh),
    STUB_ENTRY(linalg_eig),
    STUB_ENTRY(svd),
    STUB_ENTRY(lu_solve),
    STUB_ENTRY(lstsq),
    // The 15th is not a stub: see helper_slot() and the wheel's exported function of that name.
    Entry{"cholesky_solve_helper", nullptr, nullptr, nullptr, false},
};
Entry& helper_entry = entries[sizeof(entries) / sizeof(entries[0]) - 1];

std::mutex mutex;

bool is_listed(const char* name, const char* list) {
  const size_t length = std::strlen(name);
  for (const char* at = list; *at != '\0';) {
    const char* end = std::strchr(at, ',');
    const size_t size = end != nullptr ? static_cast<size_t>(end - at) : std::strlen(at);
    if (size == length && std::strncmp(at, name, length) == 0) {
      return true;
    }
    at += size + (end != nullptr ? 1 : 0);
  }
  return false;
}

// torch has a setter for the 15th entry and no getter. On x86-64 the setter is
// "mov (%rdi),%rax; mov %rax,slot(%rip)", from which the slot can be read; else it stays unknown.
void** helper_slot() {
#if defined(__x86_64__)
  auto* code = reinterpret_cast<const unsigned char*>(
      reinterpret_cast<void*>(&cuda::detail::registerLinalgDispatch));
  static const unsigned char endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
  static const unsigned char load_store[] = {0x48, 0x8b, 0x07, 0x48, 0x89, 0x05};
  if (std::memcmp(code, endbr64, sizeof(endbr64)) == 0) {
    code += sizeof(endbr64);
  }
  if (std::memcmp(code, load_store, sizeof(load_store)) == 0) {
    int32_t offset = 0;
    std::memcpy(&offset, code + sizeof(load_store), sizeof(offset));
    return reinterpret_cast<void**>(
        const_cast<unsigned char*>(code) + sizeof(load_store) + sizeof(offset) + offset);
  }
#endif
  return nullptr;
}

void put(Entry& entry, bool ours) {
  void* function = ours ? entry.ours : entry.wheel;
  entry.chosen = ours;
  if (function == nullptr) {
    return;
  }
  if (&entry == &helper_entry) {
    cuda::detail::registerLinalgDispatch({reinterpret_cast<HelperFn>(function)});
  } else {
    *entry.slot = function;
  }
}

// Before every other constructor of this library: 101 is the first priority open to programs.
__attribute__((constructor(101))) void note_previous() {
  for (auto& entry : entries) {
    if (&entry != &helper_entry) {
      entry.wheel = *entry.slot;
    }
  }
  if (void* wheel = dlopen("libtorch_cuda_linalg.so", RTLD_LAZY | RTLD_NOLOAD)) {
    helper_entry.wheel =
        dlsym(wheel, "_ZN2at6native11lazy_linalg27_cholesky_solve_helper_cudaERKNS_6TensorES4_b");
    dlclose(wheel);  // the count only: DT_NEEDED keeps it
  }
}

// After them: this file is the last in the link, and plain constructors run in link order.
__attribute__((constructor)) void keep_chosen() {
  for (auto& entry : entries) {
    if (&entry != &helper_entry) {
      entry.ours = *entry.slot;
    }
  }
  helper_entry.ours = reinterpret_cast<void*>(&lazy_linalg::_cholesky_solve_helper_cuda);
  void** slot = helper_slot();
  // BatchLinearAlgebra.cpp has just registered ours: a slot that holds anything else was misread.
  helper_entry.slot = slot != nullptr && *slot == helper_entry.ours ? slot : nullptr;
  for (auto& entry : entries) {
    put(entry, is_listed(entry.name, ATEN_LINALG_PATCHED_ENTRIES));
  }
}

void append_quoted(std::string& out, const char* text) {
  out += '"';
  for (; *text != '\0'; ++text) {
    if (*text == '"' || *text == '\\') {
      out += '\\';
    }
    out += *text;
  }
  out += '"';
}

void append_function(std::string& out, const char* key, void* function) {
  char address[32];
  std::snprintf(
      address,
      sizeof(address),
      "0x%llx",
      static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(function)));
  Dl_info where{};
  const bool found =
      function != nullptr && dladdr(function, &where) != 0 && where.dli_fname != nullptr;
  out += ", \"";
  out += key;
  out += "\": {\"address\": \"";
  out += address;
  out += "\", \"file\": ";
  append_quoted(out, found ? where.dli_fname : "");
  out += '}';
}

}  // namespace linalg_patched
}  // namespace
}  // namespace at::native

namespace patched = at::native::linalg_patched;

// JSON: for each entry what torch calls now ("current", null if it cannot be read), this library's
// and the previous function, each with the file that it lies in. Valid until the thread's next
// call.
ATEN_LINALG_PATCHED_API const char* aten_linalg_patched_report() {
  static thread_local std::string out;
  const std::lock_guard<std::mutex> guard(patched::mutex);
  out = "[";
  for (const auto& entry : patched::entries) {
    out += out.size() > 1 ? ",\n {\"entry\": " : "\n {\"entry\": ";
    patched::append_quoted(out, entry.name);
    out += entry.chosen ? ", \"chosen\": \"ours\"" : ", \"chosen\": \"wheel\"";
    if (entry.slot != nullptr) {
      patched::append_function(out, "current", *entry.slot);
    } else {
      out += ", \"current\": null";
    }
    patched::append_function(out, "ours", entry.ours);
    patched::append_function(out, "wheel", entry.wheel);
    out += '}';
  }
  out += "\n]\n";
  return out.c_str();
}

// Makes exactly the entries of the comma list ours and gives the others back. Returns how many are
// ours, or -1 (nothing changed) if a name is not an entry's.
ATEN_LINALG_PATCHED_API int aten_linalg_patched_select(const char* list) {
  const std::lock_guard<std::mutex> guard(patched::mutex);
  size_t named = 0;
  for (const auto& entry : patched::entries) {
    named += patched::is_listed(entry.name, list);
  }
  size_t given = *list != '\0';
  for (const char* at = list; *at != '\0'; ++at) {
    given += *at == ',';
  }
  if (named != given) {
    return -1;
  }
  for (auto& entry : patched::entries) {
    patched::put(entry, patched::is_listed(entry.name, list));
  }
  return static_cast<int>(named);
}

// The state right after loading: the entries that this library was built to change.
ATEN_LINALG_PATCHED_API int aten_linalg_patched_install() {
  return aten_linalg_patched_select(ATEN_LINALG_PATCHED_ENTRIES);
}

// Every entry as it was before this library was loaded.
ATEN_LINALG_PATCHED_API int aten_linalg_patched_restore() {
  return aten_linalg_patched_select("");
}
