#pragma once

// cuSOLVER's routines for symmetric (Hermitian) eigenvalue problems, by scalar type, looked up in
// the cuSOLVER that torch uses: XsyevBatched is younger than the headers of some torch builds. The
// caller gives the workspace.

#include "Cusolver.h"

#include <c10/util/complex.h>

#include <cstddef>
#include <cstdint>

namespace aten_overrides::gpu::eigen {

// Empty if syevd and syevjBatched were found, else what is missing. Known once the wheel's library
// was loaded.
const char* missing();

// Whether cuSOLVER has XsyevBatched.
bool has_syev_batched();

// Of the cuSOLVER at hand, as 11701 for 11.7.1; 0 if it does not tell.
int cusolver_version();

// One problem, or the part of it that one call gets.
struct Call {
  cusolverDnHandle_t handle;
  cusolverEigMode_t mode;
  cublasFillMode_t triangle;
  int64_t n;
};

struct Sizes {
  size_t device;
  size_t host;
};

struct Workspace {
  void* device;
  void* host;
  Sizes bytes;
};

// Settings object of the 64-bit routines.
class Params {
 public:
  Params();
  ~Params();
  Params(const Params&) = delete;
  Params& operator=(const Params&) = delete;
  cusolverDnParams_t get() const {
    return params_;
  }

 private:
  cusolverDnParams_t params_ = nullptr;
};

// Settings object of the Jacobi routines: eigenvalues ascend, else cuSOLVER's own defaults.
class JacobiParams {
 public:
  JacobiParams();
  ~JacobiParams();
  JacobiParams(const JacobiParams&) = delete;
  JacobiParams& operator=(const JacobiParams&) = delete;
  syevjInfo_t get() const {
    return params_;
  }

 private:
  syevjInfo_t params_ = nullptr;
};

template <typename scalar_t>
using real_t = typename c10::scalar_value_type<scalar_t>::type;

// The functions named sizes return false where cuSOLVER refuses the arguments, as it does for a
// batch that is too large; those of the batches return what cuSOLVER says.

template <typename scalar_t>
bool syev_batched_sizes(
    const Call& call,
    const Params& params,
    const scalar_t* a,
    const real_t<scalar_t>* values,
    int64_t batch,
    Sizes& sizes);
template <typename scalar_t>
cusolverStatus_t syev_batched(
    const Call& call,
    const Params& params,
    scalar_t* a,
    real_t<scalar_t>* values,
    const Workspace& workspace,
    int* infos,
    int64_t batch);

template <typename scalar_t>
bool syevj_batched_sizes(
    const Call& call,
    const JacobiParams& params,
    const scalar_t* a,
    const real_t<scalar_t>* values,
    int64_t batch,
    Sizes& sizes);
template <typename scalar_t>
cusolverStatus_t syevj_batched(
    const Call& call,
    const JacobiParams& params,
    scalar_t* a,
    real_t<scalar_t>* values,
    const Workspace& workspace,
    int* infos,
    int64_t batch);

template <typename scalar_t>
void syevd_sizes(const Call& call, const scalar_t* a, const real_t<scalar_t>* values, Sizes& sizes);
template <typename scalar_t>
void syevd(
    const Call& call, scalar_t* a, real_t<scalar_t>* values, const Workspace& workspace, int* info);

}  // namespace aten_overrides::gpu::eigen
