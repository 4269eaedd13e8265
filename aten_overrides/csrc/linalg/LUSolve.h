#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/TransposeType.h>
#include <ATen/native/cuda/linalg/LUSolveChoice.h>

namespace at::native {

// Solves A X = B, or with A's (conjugate) transpose, in place of B, by the route that was measured
// to be the fastest. Returns false, having done nothing, where PyTorch's own rule is to decide:
// with the preference "magma", where its triangular solves are MAGMA's and ahead, and for strides
// that torch.linalg does not make.
//
// LU: (*, n, n), pivots: (*, n), int32, B: (*, n, k), not empty. magma: whether MAGMA can be
// called.
bool lu_solve_measured(
    const Tensor& LU, const Tensor& pivots, const Tensor& B, TransposeType trans, bool magma);

// By one route, whatever was measured, on as many lanes as solver_lanes::available_lanes()
// returned. Returns false, having done nothing, for Stock and for strides that torch.linalg does
// not make.
bool lu_solve_by(
    lu_solve_choice::Backend backend,
    const Tensor& LU,
    const Tensor& pivots,
    const Tensor& B,
    TransposeType trans,
    int lanes);

}  // namespace at::native
