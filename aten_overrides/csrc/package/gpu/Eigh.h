#pragma once

// Eigenvalues and eigenvectors of symmetric (Hermitian) matrices: the entry's function, and what is
// set and asked from outside.

#include "Plan.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/cuda/linalg/EighChoice.h>

#include <cstdint>

namespace aten_overrides::gpu {

namespace eigh = at::native::eigh_choice;

// What stands behind torch's linalg_eigh_stub while the overrides are enabled. `vectors` holds the
// matrices, column-major.
void eigh_kernel(
    const at::Tensor& values,
    const at::Tensor& vectors,
    const at::Tensor& infos,
    bool upper,
    bool compute_vectors);

// The same without the look for NaN in front of syevjBatched, to see what that returns.
void eigh_unmarked(
    const at::Tensor& values,
    const at::Tensor& vectors,
    const at::Tensor& infos,
    bool upper,
    bool compute_vectors);

// The choice alone: no device is asked.
Route choose_eigh_route(
    choice::Dtype dtype,
    const eigh::Problem& problem,
    choice::Preference preference,
    const eigh::Facts& facts);

// Device memory that one call of a batched routine may take as workspace, in MiB; a larger batch is
// dealt with in several calls. Negative: as before. Returns the value now.
int64_t eigh_workspace_mib(int64_t mib);

}  // namespace aten_overrides::gpu
