#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/cuda/linalg/EighChoice.h>

// Eigenvalues and eigenvectors of a batch of symmetric (Hermitian) matrices by one cuSOLVER call
// for many of them, and the choice among cuSOLVER's routines. Not on ROCm.
//
// `vectors` holds the matrices, batched column major, and gets the eigenvectors; `values` and
// `infos` are contiguous. The matrices are not empty.

namespace at::native::eigh_choice {

struct Plan {
  Backend backend;
  int lanes;  // streams for the loop
};

// What EighThresholds.h says of the problem, this build and this call.
Plan plan_eigh(const Tensor& vectors, bool compute_vectors);

// XsyevBatched. False, with nothing done, where the cuSOLVER at hand does not have it or refuses
// even one matrix of this size.
bool eigh_batched_cusolver(
    const Tensor& values,
    const Tensor& vectors,
    const Tensor& infos,
    bool upper,
    bool compute_vectors);

// syevjBatched, likewise. It says info 0 of a matrix that holds a NaN or an infinity; here such a
// matrix gets info n + 1, no convergence, as from the other routines.
bool eigh_jacobi_batched_cusolver(
    const Tensor& values,
    const Tensor& vectors,
    const Tensor& infos,
    bool upper,
    bool compute_vectors);

}  // namespace at::native::eigh_choice
