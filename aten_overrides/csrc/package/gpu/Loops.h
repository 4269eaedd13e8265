#pragma once

// What stands behind the entries of QR, Cholesky and LDL while the overrides are enabled: the
// wheel's own function, or the same cuSOLVER calls on several streams. Matrices are column-major.

#include <ATen/core/Tensor.h>
#include <ATen/native/BatchLinearAlgebra.h>

namespace aten_overrides::gpu {

void geqrf_kernel(const at::Tensor& input, const at::Tensor& tau);
at::Tensor& orgqr_kernel(at::Tensor& result, const at::Tensor& tau);
void ormqr_kernel(
    const at::Tensor& input,
    const at::Tensor& tau,
    const at::Tensor& other,
    bool left,
    bool transpose);
void cholesky_kernel(const at::Tensor& input, const at::Tensor& info, bool upper);
at::Tensor& cholesky_inverse_kernel(at::Tensor& result, at::Tensor& infos, bool upper);
at::Tensor cholesky_solve_kernel(const at::Tensor& self, const at::Tensor& factors, bool upper);
void ldl_factor_kernel(
    const at::Tensor& input,
    const at::Tensor& pivots,
    const at::Tensor& infos,
    bool upper,
    bool hermitian);

// The wheel's own functions, known once the entries were installed.
at::native::geqrf_fn stock_geqrf();
at::native::orgqr_fn stock_orgqr();
at::native::ormqr_fn stock_ormqr();
at::native::cholesky_fn stock_cholesky();
at::native::cholesky_inverse_fn stock_cholesky_inverse();
at::native::ldl_factor_fn stock_ldl_factor();
using cholesky_solve_fn = at::Tensor (*)(const at::Tensor&, const at::Tensor&, bool);
cholesky_solve_fn stock_cholesky_solve();

}  // namespace aten_overrides::gpu
