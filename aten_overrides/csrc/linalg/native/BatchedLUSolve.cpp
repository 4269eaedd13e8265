#include <ATen/native/cuda/linalg/native/BatchedLUSolve.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include <ATen/native/cuda/linalg/native/HostParts.h>
#include <ATen/native/cuda/linalg/native/SolveKernels.h>

namespace at::native::batched_native {

namespace {

constexpr const char* kSolve = "batched_native solve";  // in errors
constexpr int64_t kMostItems = 65535;                   // cuBLAS's limit for a batch
constexpr int64_t kMostBlocks = int64_t{1} << 30;       // of one launch
constexpr int64_t kMostColumns = int64_t{1} << 18;      // of one product
constexpr int kLeaf = 128;                              // rows of a tile of the blocked route

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument(std::string(kSolve) + ": " + what);
}

// Both triangles by recursion over halves: the products are as deep as they can be.
template <typename T>
class BlockedSolve {
 public:
  BlockedSolve(
      const Systems<T>& systems, int leaf, int tiles, cublasHandle_t handle, cudaStream_t stream)
      : p_(systems), leaf_(leaf), tiles_(tiles), handle_(handle), stream_(stream) {}

  void run() {
    triangle(0, p_.n, true);
    triangle(0, p_.n, false);
  }

 private:
  // From the top for the first triangle, from the bottom for the second.
  void triangle(int first, int width, bool down) {
    if (width <= leaf_) {
      launch_tile_solve(TileSolve<T>{p_, first, width, tiles_, down, !down, nullptr}, stream_);
      return;
    }
    // Tiles of about the same size, so that one row more adds no tile of one row.
    const int pieces = (width + leaf_ - 1) / leaf_;
    const int each = std::min((width + pieces * kRound - 1) / (pieces * kRound) * kRound, leaf_);
    const int above = pieces / 2 * each;
    const int middle = first + above, below = width - above;
    if (down) {
      triangle(first, above, down);
      subtract(first, above, middle, below);
      triangle(middle, below, down);
    } else {
      triangle(middle, below, down);
      subtract(middle, below, first, above);
      triangle(first, above, down);
    }
  }

  // B[to :] -= (A or its transpose)[to :, from :] X[from :]
  void subtract(int from, int depth, int to, int rows) {
    const T* const a = p_.transposed ? p_.lu + from + to * p_.lda : p_.lu + to + from * p_.lda;
    const auto operation = !p_.transposed ? CUBLAS_OP_N : p_.conjugated ? CUBLAS_OP_C : CUBLAS_OP_T;
    const auto type = Gemm<T>::type;
    check_cublas(
        cublasGemmStridedBatchedEx(
            handle_,
            operation,
            CUBLAS_OP_N,
            rows,
            p_.nrhs,
            depth,
            &Gemm<T>::minus,
            a,
            type,
            static_cast<int>(p_.lda),
            p_.lu_batch == 1 ? 0 : p_.lu_stride,
            p_.b + from,
            type,
            static_cast<int>(p_.ldb),
            p_.b_stride,
            &Gemm<T>::one,
            p_.b + to,
            type,
            static_cast<int>(p_.ldb),
            p_.b_stride,
            static_cast<int>(p_.batch),
            Gemm<T>::compute,
            CUBLAS_GEMM_DEFAULT),
        kSolve,
        "cublasGemmStridedBatchedEx");
  }

  static constexpr int kRound = 16;  // rows of a tile that are solved together
  Systems<T> p_;
  int leaf_, tiles_;
  cublasHandle_t handle_;
  cudaStream_t stream_;
};

// Calls use(part) over all right-hand sides, at most `items` matrices and `columns` columns at
// once, so that each part's factors follow one another and factor item % lu_batch serves item.
template <typename T, typename Use>
void in_parts(const Systems<T>& all, int64_t nrhs, int64_t items, int64_t columns, Use&& use) {
  const bool own = all.lu_batch == all.batch;
  for (int64_t column = 0; column < nrhs; column += columns) {
    for (int64_t done = 0; done < all.batch;) {
      const int64_t factor = done % all.lu_batch, left = all.batch - done;
      Systems<T> part = all;
      part.nrhs = static_cast<int>(std::min(columns, nrhs - column));
      if (all.lu_batch == 1) {
        part.batch = std::min(items, left);
      } else if (own || all.lu_batch > items) {
        part.batch = std::min({items, left, all.lu_batch - factor});
        part.lu_batch = part.batch;
      } else {
        part.batch = std::min(items / all.lu_batch * all.lu_batch, left);
      }
      part.lu += factor * all.lu_stride;
      part.pivots += factor * all.pivot_stride;
      part.b += done * all.b_stride + column * all.ldb;
      use(part, factor);
      done += part.batch;
    }
  }
}

void check_arguments(
    const SolveProblem& p,
    int64_t lda,
    int64_t lu_stride,
    int64_t pivot_stride,
    int64_t ldb,
    int64_t b_stride) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (p.batch < 0 || p.n < 0 || p.nrhs < 0 || p.batch >= most || p.n >= most || p.nrhs >= most) {
    refuse(
        "batch, rows and right-hand sides must lie in 0.." + std::to_string(most - 1) + ", got " +
        std::to_string(p.batch) + ", " + std::to_string(p.n) + ", " + std::to_string(p.nrhs));
  }
  if (p.batch > 0 && (p.lu_batch < 1 || p.batch % p.lu_batch != 0)) {
    refuse(
        std::to_string(p.lu_batch) + " factors cannot serve " + std::to_string(p.batch) +
        " items in turn");
  }
  const int64_t least = std::max<int64_t>(1, p.n);
  if (lda < least || lda > most || ldb < least || ldb > most) {
    refuse(
        "lda and ldb must be at least the row count, got " + std::to_string(lda) + " and " +
        std::to_string(ldb));
  }
  if (p.lu_batch > 1 && (lu_stride < lda * (p.n - 1) + p.n || pivot_stride < p.n)) {
    refuse(
        "factors or pivots overlap: stride " + std::to_string(lu_stride) + ", pivot stride " +
        std::to_string(pivot_stride));
  }
  const int64_t used = ldb * (p.nrhs - 1) + p.n;
  if (p.batch > 1 && p.n > 0 && p.nrhs > 0 && b_stride < used) {
    refuse(
        "right-hand sides overlap: they follow one another by " + std::to_string(b_stride) +
        " elements and take " + std::to_string(used));
  }
}

[[noreturn]] void refuse_rows(int64_t n) {
  refuse("n = " + std::to_string(n) + " is too large for this device's shared memory");
}

// Warps of a block that makes a pass: as many as have work, fewer where the batch alone fills the
// multiprocessors. Of what was measured on an H200 (n 64 to 2048, batch 1 to 1024) about the best.
int pass_warps(const SolveProblem& p, int together) {
  const int64_t blocks = (p.n + 31) / 32;
  const int64_t passes = p.batch * ((p.nrhs + together - 1) / together);
  const int64_t multiprocessors = device_attribute(cudaDevAttrMultiProcessorCount);
  const bool crowded = passes > 4 * multiprocessors;
  if (p.n <= 32) {
    return 1;
  }
  if (crowded) {
    switch (p.scalar) {
      case Scalar::Float:
        return p.n <= 96 ? 3 : 4;
      case Scalar::Double:
        return 5;
      default:
        return static_cast<int>(std::clamp<int64_t>(blocks, 3, 8));
    }
  }
  // Even where little is left to sum there are 64 lines of the two tiles to bring. Without
  // transposition the first warp adds up the others' sums.
  const int64_t most_rows = p.transposed ? 96 : 512;
  const bool waits = together > 1 && passes > multiprocessors;  // for a block to end
  return p.n <= most_rows || waits ? 9 : kPassWarps;
}

// Tiles of 32 columns that a block has: several, which take fewer reads a product, where there are
// blocks enough without.
int tiles_together(const SolveProblem& p, int most) {
  const int64_t tiles = (p.nrhs + 31) / 32;
  const int64_t blocks = p.batch * ((tiles + most - 1) / most);
  const bool enough = blocks >= 2 * int64_t{device_attribute(cudaDevAttrMultiProcessorCount)};
  return tiles >= most && enough ? most : 1;
}

// Rows of a tile of the blocked route: fewer where the products of doubles fill the device.
int leaf_rows(const SolveProblem& p) {
  const bool doubles = p.scalar == Scalar::Double || p.scalar == Scalar::ComplexDouble;
  const int64_t tiles = p.batch * ((p.nrhs + 31) / 32);
  const int multiprocessors = device_attribute(cudaDevAttrMultiProcessorCount);
  return doubles && tiles >= 2 * int64_t{multiprocessors} ? kLeaf / 2 : kLeaf;
}

void find_orders(
    const int32_t* pivots,
    int64_t pivot_stride,
    int64_t count,
    int n,
    int32_t* orders,
    cudaStream_t stream) {
  for (int64_t done = 0; done < count; done += kMostBlocks) {
    const int64_t some = std::min(kMostBlocks, count - done);
    launch_order(pivots + done * pivot_stride, pivot_stride, some, n, orders + done * n, stream);
  }
}

void check_workspace(size_t given, size_t needed) {
  if (given < needed) {
    refuse("workspace of " + std::to_string(given) + " bytes, it needs " + std::to_string(needed));
  }
}

}  // namespace

SolvePlan solve_plan(const SolveProblem& p, bool pass) {
  const SolvePlan none{SolveRoute::None, 1, 1, kLeaf};
  if (p.batch <= 0 || p.n <= 0 || p.nrhs <= 0 || !solve_fits(p, pass)) {
    return none;
  }
  return with_scalar(p.scalar, kSolve, [&](auto x) {
    using T = decltype(x);
    const size_t shared = shared_limit();
    const int n = static_cast<int>(p.n);
    if (pass && n <= kSmallRows) {
      return SolvePlan{SolveRoute::Small, 1, 1, kLeaf};
    }
    if (pass) {
      int together = pass_columns<T>(static_cast<int>(std::min(p.nrhs, kMostColumns)));
      int warps = pass_warps(p, together);
      while (pass_bytes<T>(n, together, warps) > shared) {
        if (together > 1) {
          together = 1;
        } else {
          warps = std::max(1, warps / 2);
        }
      }
      return SolvePlan{SolveRoute::Pass, together, warps, kLeaf};
    }
    const int most = tile_width<T>(shared);
    const int width = n <= most ? n : std::min(leaf_rows(p), most);
    const int tiles = tiles_together(p, tile_columns<T>(width, shared));
    return SolvePlan{n <= most ? SolveRoute::Tile : SolveRoute::Blocked, tiles, 1, width};
  });
}

bool solve_fits(const SolveProblem& p, bool pass) {
  constexpr int64_t most = std::numeric_limits<int16_t>::max();  // far beyond shared memory
  if (p.n > most) {
    return false;
  }
  return with_scalar(p.scalar, kSolve, [&](auto x) {
    using T = decltype(x);
    const int n = static_cast<int>(std::max<int64_t>(1, p.n));
    const size_t need =
        pass ? pass_bytes<T>(n, 1, 2) : std::max(order_bytes(n), permute_bytes<T>(n));
    return need <= shared_limit();
  });
}

size_t solve_workspace(const SolveProblem& p, const SolvePlan& plan) {
  const bool ordered = plan.route == SolveRoute::Tile || plan.route == SolveRoute::Blocked;
  return ordered ? static_cast<size_t>(p.lu_batch) * p.n * sizeof(int32_t) : 0;
}

void lu_solve(
    const SolveProblem& problem,
    const SolvePlan& plan,
    const void* lu,
    int64_t lda,
    int64_t lu_stride,
    const int32_t* pivots,
    int64_t pivot_stride,
    void* b,
    int64_t ldb,
    int64_t b_stride,
    void* workspace,
    size_t workspace_bytes,
    cublasHandle_t handle,
    cudaStream_t stream) {
  check_arguments(problem, lda, lu_stride, pivot_stride, ldb, b_stride);
  if (problem.batch == 0 || problem.n == 0 || problem.nrhs == 0) {
    return;
  }
  if (plan.route == SolveRoute::None) {
    refuse_rows(problem.n);
  }
  check_workspace(workspace_bytes, solve_workspace(problem, plan));
  with_scalar(problem.scalar, kSolve, [&](auto x) {
    using T = decltype(x);
    const int n = static_cast<int>(problem.n);
    const Systems<T> all{
        static_cast<const T*>(lu),
        lda,
        lu_stride,
        problem.lu_batch,
        pivots,
        pivot_stride,
        static_cast<T*>(b),
        ldb,
        b_stride,
        problem.batch,
        n,
        0,
        problem.transposed,
        problem.transposed && problem.conjugated};
    const int64_t columns = std::min(problem.nrhs, kMostColumns);
    const int64_t items = kMostBlocks / columns;
    if (plan.route == SolveRoute::Small) {
      in_parts(all, problem.nrhs, items, columns, [&](const Systems<T>& part, int64_t) {
        launch_small(part, stream);
      });
      return;
    }
    if (plan.route == SolveRoute::Pass) {
      in_parts(all, problem.nrhs, items, columns, [&](const Systems<T>& part, int64_t) {
        launch_pass(part, plan.together, plan.warps, stream);
      });
      return;
    }
    int32_t* const orders = static_cast<int32_t*>(workspace);
    find_orders(pivots, pivot_stride, problem.lu_batch, n, orders, stream);
    if (plan.route == SolveRoute::Tile) {
      in_parts(all, problem.nrhs, items, columns, [&](const Systems<T>& part, int64_t factor) {
        launch_tile_solve(
            TileSolve<T>{part, 0, n, plan.together, true, true, orders + factor * n}, stream);
      });
      return;
    }
    const HandleModes modes(handle, kSolve);
    const size_t shared = shared_limit();
    // A product takes one distance from factor to factor, so: all factors once, or all items of one
    // factor, whichever are more.
    const int64_t factors = problem.lu_batch, times = problem.batch / factors;
    const bool by_factor = times > factors;
    for (int64_t index = 0; index < std::min(times, factors); ++index) {
      Systems<T> same = all;
      same.batch = std::max(times, factors);
      same.b += index * b_stride * (by_factor ? 1 : factors);
      if (by_factor) {
        same.lu += index * lu_stride;
        same.pivots += index * pivot_stride;
        same.lu_batch = 1;
        same.b_stride *= factors;
      }
      const int32_t* const order = orders + (by_factor ? index * n : 0);
      const int64_t some = std::min(kMostItems, items);
      in_parts(same, problem.nrhs, some, columns, [&](const Systems<T>& part, int64_t factor) {
        const int32_t* const own = order + factor * n;
        if (!part.transposed) {
          launch_permute(part, own, shared, stream);
        }
        BlockedSolve<T>(part, plan.width, plan.together, handle, stream).run();
        if (part.transposed) {
          launch_permute(part, own, shared, stream);
        }
      });
    }
  });
}

size_t exchange_workspace(const SolveProblem& p) {
  return static_cast<size_t>(p.lu_batch) * p.n * sizeof(int32_t);
}

void exchange_rows(
    const SolveProblem& problem,
    const int32_t* pivots,
    int64_t pivot_stride,
    void* b,
    int64_t ldb,
    int64_t b_stride,
    void* workspace,
    size_t workspace_bytes,
    cudaStream_t stream) {
  check_arguments(problem, ldb, ldb * problem.n, pivot_stride, ldb, b_stride);
  if (problem.batch == 0 || problem.n == 0 || problem.nrhs == 0) {
    return;
  }
  if (!solve_fits(problem, false)) {
    refuse_rows(problem.n);
  }
  check_workspace(workspace_bytes, exchange_workspace(problem));
  with_scalar(problem.scalar, kSolve, [&](auto x) {
    using T = decltype(x);
    const int n = static_cast<int>(problem.n);
    int32_t* const orders = static_cast<int32_t*>(workspace);
    find_orders(pivots, pivot_stride, problem.lu_batch, n, orders, stream);
    const Systems<T> all{
        nullptr,
        ldb,
        0,
        problem.lu_batch,
        pivots,
        pivot_stride,
        static_cast<T*>(b),
        ldb,
        b_stride,
        problem.batch,
        n,
        0,
        problem.transposed,
        false};
    const int64_t columns = std::min(problem.nrhs, kMostColumns);
    const size_t shared = shared_limit();
    in_parts(
        all,
        problem.nrhs,
        kMostBlocks / columns,
        columns,
        [&](const Systems<T>& part, int64_t factor) {
          launch_permute(part, orders + factor * n, shared, stream);
        });
  });
}

}  // namespace at::native::batched_native
