#pragma once

// eigh by cuSOLVER's routines, as the choice calls them: `vectors` holds the matrices,
// column-major, and gets the eigenvectors; `infos` what the routines say.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace aten_overrides::gpu {

// XsyevBatched and syevjBatched, for at most `most` matrices a call. They return how many matrices
// are done, the first of the batch: fewer than all where the routine refused one alone.
int64_t eigh_batched_cusolver(
    const at::Tensor& values,
    const at::Tensor& vectors,
    const at::Tensor& infos,
    bool upper,
    bool compute_vectors,
    int64_t most);
int64_t eigh_jacobi_batched_cusolver(
    const at::Tensor& values,
    const at::Tensor& vectors,
    const at::Tensor& infos,
    bool upper,
    bool compute_vectors,
    int64_t most);

// Xsyevd matrix by matrix, on `lane_count` streams.
void eigh_cusolver(
    const at::Tensor& values,
    const at::Tensor& vectors,
    const at::Tensor& infos,
    bool upper,
    bool compute_vectors,
    int lane_count);

}  // namespace aten_overrides::gpu
