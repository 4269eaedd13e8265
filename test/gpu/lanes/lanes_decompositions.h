#pragma once

// Singular values and eigenvalues, of the operations.

#include "lanes_operations.h"

namespace lanes {

template <class scalar>
Operation Maker<scalar>::gesvdj() {
  constexpr auto kVectors = CUSOLVER_EIG_MODE_VECTOR;
  Operation made;
  int elements = 0;
  CHECKED(S::gesvdj_size(
      lane_.handle,
      kVectors,
      /*econ=*/1,
      m_,
      n_,
      a_,
      m_,
      singular(0),
      left(0),
      m_,
      right(0),
      n_,
      &elements,
      lane_.jacobi));
  made.device_bytes = sizeof(scalar) * static_cast<size_t>(elements);
  made.call = [this, elements](const Lane& lane, int64_t item) {
    CHECKED(S::gesvdj(
        lane.handle,
        kVectors,
        /*econ=*/1,
        m_,
        n_,
        a(item),
        m_,
        singular(item),
        left(item),
        m_,
        right(item),
        n_,
        work(lane),
        elements,
        p_.infos + item,
        lane.jacobi));
  };
  if (m_ <= 32 && n_ <= 32) {
    int all = 0;
    CHECKED(S::gesvdj_batched_size(
        lane_.handle,
        kVectors,
        m_,
        n_,
        a_,
        m_,
        singular(0),
        left(0),
        m_,
        right(0),
        n_,
        &all,
        lane_.jacobi,
        batch_));
    made.batched_bytes = sizeof(scalar) * static_cast<size_t>(all);
    made.batched = [this, all](const Lane& lane) {
      CHECKED(S::gesvdj_batched(
          lane.handle,
          kVectors,
          m_,
          n_,
          a_,
          m_,
          singular(0),
          left(0),
          m_,
          right(0),
          n_,
          work(lane),
          all,
          p_.infos,
          lane.jacobi,
          batch_));
    };
  }
  return made;
}

template <class scalar>
Operation Maker<scalar>::gesvd() {
  Operation made;
  int elements = 0;
  CHECKED(S::gesvd_size(lane_.handle, m_, n_, &elements));
  const size_t head =
      (sizeof(scalar) * static_cast<size_t>(elements) + kAlignment - 1) / kAlignment * kAlignment;
  made.device_bytes = head + sizeof(real) * static_cast<size_t>(5 * k_);
  made.call = [this, elements, head](const Lane& lane, int64_t item) {
    CHECKED(S::gesvd(
        lane.handle,
        'S',
        'S',
        m_,
        n_,
        a(item),
        m_,
        singular(item),
        left(item),
        m_,
        right(item),
        n_,
        work(lane),
        elements,
        reinterpret_cast<real*>(lane.work + head),
        p_.infos + item));
  };
  return made;
}

template <class scalar>
Operation Maker<scalar>::geev() {
  constexpr auto kNone = CUSOLVER_EIG_MODE_NOVECTOR, kVectors = CUSOLVER_EIG_MODE_VECTOR;
  Operation made;
  CHECKED(cusolverDnXgeev_bufferSize(
      lane_.handle,
      lane_.params,
      kNone,
      kVectors,
      n_,
      S::type,
      a_,
      n_,
      S::complex_type,
      p_.c,
      S::type,
      nullptr,
      n_,
      S::type,
      p_.d,
      n_,
      S::type,
      &made.device_bytes,
      &made.host_bytes));
  const size_t device = made.device_bytes, host = made.host_bytes;
  made.call = [this, device, host](const Lane& lane, int64_t item) {
    CHECKED(cusolverDnXgeev(
        lane.handle,
        lane.params,
        kNone,
        kVectors,
        n_,
        S::type,
        a(item),
        n_,
        S::complex_type,
        static_cast<char*>(p_.c) + item * p_.n * static_cast<int64_t>(2 * sizeof(real)),
        S::type,
        nullptr,
        n_,
        S::type,
        right(item),
        n_,
        S::type,
        lane.work,
        device,
        lane.host,
        host,
        p_.infos + item));
  };
  return made;
}

}  // namespace lanes
