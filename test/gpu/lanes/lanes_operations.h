#pragma once

// The operations: what a lane needs, the call for one matrix, and the vendor's call for all.

#include "lanes_world.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace lanes {

// ---- Routines by scalar type ----

template <class scalar>
struct Solver;

#define DEFINE_SOLVER(scalar_type, real_type, letter, reflectors, cuda, complex_cuda)          \
  template <>                                                                                  \
  struct Solver<scalar_type> {                                                                 \
    using real = real_type;                                                                    \
    static constexpr cudaDataType type = cuda;                                                 \
    static constexpr cudaDataType complex_type = complex_cuda;                                 \
    static constexpr bool is_complex = cuda == complex_cuda;                                   \
    static constexpr auto orgqr_size = &cusolverDn##letter##reflectors##gqr_bufferSize;        \
    static constexpr auto orgqr = &cusolverDn##letter##reflectors##gqr;                        \
    static constexpr auto ormqr_size = &cusolverDn##letter##reflectors##mqr_bufferSize;        \
    static constexpr auto ormqr = &cusolverDn##letter##reflectors##mqr;                        \
    static constexpr auto potrf_batched = &cusolverDn##letter##potrfBatched;                   \
    static constexpr auto potrs_batched = &cusolverDn##letter##potrsBatched;                   \
    static constexpr auto sytrf_size = &cusolverDn##letter##sytrf_bufferSize;                  \
    static constexpr auto sytrf = &cusolverDn##letter##sytrf;                                  \
    static constexpr auto gesvd_size = &cusolverDn##letter##gesvd_bufferSize;                  \
    static constexpr auto gesvd = &cusolverDn##letter##gesvd;                                  \
    static constexpr auto gesvdj_size = &cusolverDn##letter##gesvdj_bufferSize;                \
    static constexpr auto gesvdj = &cusolverDn##letter##gesvdj;                                \
    static constexpr auto gesvdj_batched_size = &cusolverDn##letter##gesvdjBatched_bufferSize; \
    static constexpr auto gesvdj_batched = &cusolverDn##letter##gesvdjBatched;                 \
    static constexpr auto geqrf_batched = &cublas##letter##geqrfBatched;                       \
  };
DEFINE_SOLVER(float, float, S, or, CUDA_R_32F, CUDA_C_32F)
DEFINE_SOLVER(double, double, D, or, CUDA_R_64F, CUDA_C_64F)
DEFINE_SOLVER(cuComplex, float, C, un, CUDA_C_32F, CUDA_C_32F)
DEFINE_SOLVER(cuDoubleComplex, double, Z, un, CUDA_C_64F, CUDA_C_64F)

// ---- Operations ----

// One operation on one problem: what a lane needs, the call for an item, and the one for all.
struct Operation {
  size_t device_bytes = 0, host_bytes = 0;
  std::function<void(const Lane&, int64_t item)> call;
  size_t batched_bytes = 0;
  std::function<void(const Lane&)> batched;  // empty: there is none
  // Pointers to the items of a batch, for the batched routines.
  std::vector<std::unique_ptr<DeviceMemory>> pointers;
};

enum Op : int32_t { kGeqrf, kOrgqr, kOrmqr, kPotrf, kPotrs, kSytrf, kGesvdj, kGesvd, kGeev, kOps };

template <class scalar>
class Maker {
 public:
  Maker(const lanes_problem& problem, const Lane& lane)
      : p_(problem),
        lane_(lane),
        a_(static_cast<scalar*>(problem.a)),
        b_(static_cast<scalar*>(problem.b)),
        m_(static_cast<int>(problem.m)),
        n_(static_cast<int>(problem.n)),
        k_(std::min(m_, n_)),
        nrhs_(static_cast<int>(problem.nrhs)),
        batch_(static_cast<int>(problem.batch)) {}

  Operation make() {
    switch (p_.op) {
      case kGeqrf:
        return geqrf();
      case kOrgqr:
        return orgqr();
      case kOrmqr:
        return ormqr();
      case kPotrf:
        return potrf();
      case kPotrs:
        return potrs();
      case kSytrf:
        return sytrf();
      case kGesvdj:
        return gesvdj();
      case kGesvd:
        return gesvd();
      case kGeev:
        return geev();
      default:
        throw std::runtime_error("unknown operation " + std::to_string(p_.op));
    }
  }

 private:
  using S = Solver<scalar>;
  using real = typename S::real;
  static constexpr cublasFillMode_t kLower = CUBLAS_FILL_MODE_LOWER;

  int64_t items_a() const {
    return p_.m * p_.n;
  }

  scalar* a(int64_t item) const {
    return a_ + item * items_a();
  }

  scalar* tau(int64_t item) const {
    return static_cast<scalar*>(p_.c) + item * k_;
  }

  static scalar* work(const Lane& lane) {
    return reinterpret_cast<scalar*>(lane.work);
  }

  scalar** pointers(Operation& made, scalar* first, int64_t step) const {
    std::vector<scalar*> host;
    for (int64_t item = 0; item < p_.batch; ++item) {
      host.push_back(first + item * step);
    }
    const size_t bytes = host.size() * sizeof(scalar*);
    made.pointers.push_back(std::make_unique<DeviceMemory>(bytes));
    CHECKED(cudaMemcpy(made.pointers.back()->get(), host.data(), bytes, cudaMemcpyHostToDevice));
    return reinterpret_cast<scalar**>(made.pointers.back()->get());
  }

  Operation geqrf() {
    Operation made;
    CHECKED(cusolverDnXgeqrf_bufferSize(
        lane_.handle,
        nullptr,
        m_,
        n_,
        S::type,
        a_,
        m_,
        S::type,
        p_.c,
        S::type,
        &made.device_bytes,
        &made.host_bytes));
    const size_t device = made.device_bytes, host = made.host_bytes;
    made.call = [this, device, host](const Lane& lane, int64_t item) {
      CHECKED(cusolverDnXgeqrf(
          lane.handle,
          nullptr,
          m_,
          n_,
          S::type,
          a(item),
          m_,
          S::type,
          tau(item),
          S::type,
          lane.work,
          device,
          lane.host,
          host,
          lane.info));
    };
    scalar** all = pointers(made, a_, items_a());
    scalar** taus = pointers(made, tau(0), k_);
    made.batched = [this, all, taus](const Lane&) {
      int info = 0;
      CHECKED(S::geqrf_batched(world().cublas, m_, n_, all, m_, taus, &info, batch_));
    };
    return made;
  }

  Operation orgqr() {
    Operation made;
    int elements = 0;
    CHECKED(S::orgqr_size(lane_.handle, m_, n_, k_, a_, m_, tau(0), &elements));
    made.device_bytes = sizeof(scalar) * static_cast<size_t>(elements);
    made.call = [this, elements](const Lane& lane, int64_t item) {
      CHECKED(S::orgqr(
          lane.handle, m_, n_, k_, a(item), m_, tau(item), work(lane), elements, lane.info));
    };
    return made;
  }

  Operation ormqr() {
    Operation made;
    int elements = 0;
    const auto trans = S::is_complex ? CUBLAS_OP_C : CUBLAS_OP_T;
    CHECKED(S::ormqr_size(
        lane_.handle, CUBLAS_SIDE_LEFT, trans, m_, nrhs_, k_, a_, m_, tau(0), b_, m_, &elements));
    made.device_bytes = sizeof(scalar) * static_cast<size_t>(elements);
    made.call = [this, elements, trans](const Lane& lane, int64_t item) {
      CHECKED(S::ormqr(
          lane.handle,
          CUBLAS_SIDE_LEFT,
          trans,
          m_,
          nrhs_,
          k_,
          a(item),
          m_,
          tau(item),
          b_ + item * p_.m * p_.nrhs,
          m_,
          work(lane),
          elements,
          lane.info));
    };
    return made;
  }

  Operation potrf() {
    Operation made;
    CHECKED(cusolverDnXpotrf_bufferSize(
        lane_.handle,
        lane_.params,
        kLower,
        n_,
        S::type,
        a_,
        n_,
        S::type,
        &made.device_bytes,
        &made.host_bytes));
    const size_t device = made.device_bytes, host = made.host_bytes;
    made.call = [this, device, host](const Lane& lane, int64_t item) {
      CHECKED(cusolverDnXpotrf(
          lane.handle,
          lane.params,
          kLower,
          n_,
          S::type,
          a(item),
          n_,
          S::type,
          lane.work,
          device,
          lane.host,
          host,
          p_.infos + item));
    };
    scalar** all = pointers(made, a_, items_a());
    made.batched = [this, all](const Lane& lane) {
      CHECKED(S::potrf_batched(lane.handle, kLower, n_, all, n_, p_.infos, batch_));
    };
    return made;
  }

  Operation potrs() {
    Operation made;
    made.call = [this](const Lane& lane, int64_t item) {
      CHECKED(cusolverDnXpotrs(
          lane.handle,
          lane.params,
          kLower,
          n_,
          nrhs_,
          S::type,
          a(item),
          n_,
          S::type,
          b_ + item * p_.n * p_.nrhs,
          n_,
          lane.info));
    };
    if (nrhs_ == 1) {
      scalar** all = pointers(made, a_, items_a());
      scalar** sides = pointers(made, b_, p_.n);
      made.batched = [this, all, sides](const Lane& lane) {
        CHECKED(
            S::potrs_batched(lane.handle, kLower, n_, 1, all, n_, sides, n_, lane.info, batch_));
      };
    }
    return made;
  }

  Operation sytrf() {
    Operation made;
    int elements = 0;
    CHECKED(S::sytrf_size(lane_.handle, n_, a_, n_, &elements));
    made.device_bytes = sizeof(scalar) * static_cast<size_t>(elements);
    made.call = [this, elements](const Lane& lane, int64_t item) {
      CHECKED(S::sytrf(
          lane.handle,
          kLower,
          n_,
          a(item),
          n_,
          p_.pivots + item * p_.n,
          work(lane),
          elements,
          p_.infos + item));
    };
    return made;
  }

  real* singular(int64_t item) const {
    return static_cast<real*>(p_.c) + item * k_;
  }

  scalar* right(int64_t item) const {
    return static_cast<scalar*>(p_.d) + item * p_.n * p_.n;
  }

  scalar* left(int64_t item) const {
    return b_ + item * p_.m * p_.m;
  }

  Operation gesvdj();
  Operation gesvd();
  Operation geev();
  const lanes_problem p_;
  const Lane& lane_;
  scalar* const a_;
  scalar* const b_;
  const int m_, n_, k_, nrhs_, batch_;
};

}  // namespace lanes
