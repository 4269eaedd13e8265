#pragma once

// The entries (dispatch stubs) through which torch calls a linalg library: which function is behind
// each, and ours in some of them.

#include <cstdint>
#include <string>

namespace aten_overrides::gpu {

constexpr uint32_t kLuFactorBit = 1;
constexpr uint32_t kLuSolveBit = 2;
constexpr uint32_t kEighBit = 4;
constexpr uint32_t kGeqrfBit = 8;
constexpr uint32_t kOrgqrBit = 16;
constexpr uint32_t kOrmqrBit = 32;
constexpr uint32_t kCholeskyBit = 64;
constexpr uint32_t kCholeskyInverseBit = 128;
constexpr uint32_t kLdlFactorBit = 256;
constexpr uint32_t kCholeskySolveBit = 512;

// The functions below may be called by any thread at any time.

// See aten_overrides_gpu_guard.
void guard_entries(const char* linalg);

// See aten_overrides_gpu_install. Returns what failed, empty on success; then nothing has changed.
std::string install_entries(const char* linalg, uint32_t bits);

// See aten_overrides_gpu_restore.
uint32_t restore_entries();

uint32_t installed_entries();

struct EntryView {
  const char* name;
  const void* current;
  const void* saved;
  const void* ours;
};

// name is null beyond the last one.
EntryView entry_at(int index);

}  // namespace aten_overrides::gpu
