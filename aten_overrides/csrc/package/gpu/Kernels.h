#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/TransposeType.h>

namespace aten_overrides::gpu {

// What stands behind torch's lu_factor_stub and lu_solve_stub while the overrides are enabled.
void lu_factor_kernel(
    const at::Tensor& input,
    const at::Tensor& pivots,
    const at::Tensor& infos,
    bool compute_pivots);
void lu_solve_kernel(
    const at::Tensor& LU,
    const at::Tensor& pivots,
    const at::Tensor& B,
    at::native::TransposeType trans);

// The wheel's own functions, known once the entries were installed.
at::native::lu_factor_fn stock_lu_factor();
at::native::lu_solve_fn stock_lu_solve();
at::native::linalg_eigh_fn stock_eigh();

}  // namespace aten_overrides::gpu
