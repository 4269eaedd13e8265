#pragma once

// cuSOLVER's QR, Cholesky and LDL routines by scalar type, looked up in the library that torch
// uses, not linked. The calls are those of torch's own loops, so that the results are too. The
// caller gives the workspace: `Sizes` bytes of each kind for every stream.

#include "SymmetricEigen.h"

#include <cstddef>
#include <cstdint>

namespace aten_overrides::gpu::loop_routines {

using eigen::Sizes;
using eigen::Workspace;

// The name of a function that the library at hand lacks; empty: it has all.
const char* missing();

// k reflectors, and the m x n matrix that becomes Q or that Q is multiplied with. `side` and
// `adjoint` are ormqr's: the reflectors have m rows on the left, n on the right.
struct Reflectors {
  int m;
  int n;
  int k;
  cublasSideMode_t side = CUBLAS_SIDE_LEFT;
  bool adjoint = false;
};

template <typename scalar_t>
Sizes geqrf_sizes(cusolverDnHandle_t handle, int64_t m, int64_t n, scalar_t* a, scalar_t* tau);
template <typename scalar_t>
void geqrf(
    cusolverDnHandle_t handle,
    int64_t m,
    int64_t n,
    scalar_t* a,
    scalar_t* tau,
    const Workspace& workspace,
    int* info);

template <typename scalar_t>
Sizes orgqr_sizes(
    cusolverDnHandle_t handle, const Reflectors& shape, scalar_t* a, const scalar_t* tau);
template <typename scalar_t>
void orgqr(
    cusolverDnHandle_t handle,
    const Reflectors& shape,
    scalar_t* a,
    const scalar_t* tau,
    const Workspace& workspace,
    int* info);

template <typename scalar_t>
Sizes ormqr_sizes(
    cusolverDnHandle_t handle,
    const Reflectors& shape,
    const scalar_t* a,
    const scalar_t* tau,
    scalar_t* c);
template <typename scalar_t>
void ormqr(
    cusolverDnHandle_t handle,
    const Reflectors& shape,
    const scalar_t* a,
    const scalar_t* tau,
    scalar_t* c,
    const Workspace& workspace,
    int* info);

template <typename scalar_t>
Sizes potrf_sizes(
    cusolverDnHandle_t handle,
    const eigen::Params& params,
    cublasFillMode_t triangle,
    int64_t n,
    scalar_t* a);
template <typename scalar_t>
void potrf(
    cusolverDnHandle_t handle,
    const eigen::Params& params,
    cublasFillMode_t triangle,
    int64_t n,
    scalar_t* a,
    const Workspace& workspace,
    int* info);

template <typename scalar_t>
void potrs(
    cusolverDnHandle_t handle,
    const eigen::Params& params,
    cublasFillMode_t triangle,
    int64_t n,
    int64_t nrhs,
    const scalar_t* a,
    scalar_t* b,
    int* info);

template <typename scalar_t>
Sizes sytrf_sizes(cusolverDnHandle_t handle, int n, scalar_t* a);
template <typename scalar_t>
void sytrf(
    cusolverDnHandle_t handle,
    cublasFillMode_t triangle,
    int n,
    scalar_t* a,
    int* pivots,
    const Workspace& workspace,
    int* info);

}  // namespace aten_overrides::gpu::loop_routines
