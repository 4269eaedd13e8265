#pragma once

#include <algorithm>

#include <cuda_pipeline.h>

#include <ATen/native/cuda/linalg/native/RowOrder.cuh>
#include <ATen/native/cuda/linalg/native/SolveKernels.h>
#include <ATen/native/cuda/linalg/native/SolveScalar.cuh>

// What the warps of a pass do (PassSolve.cuh): the workers, and the first warp.
namespace at::native::batched_native {

template <typename T, int R>
struct PassSolve {
  static constexpr int kBlock = 32;
  static constexpr int kStep = kBlock + 1;  // of a tile's columns, against bank conflicts
  static constexpr int kTile = kBlock * kStep;
  static constexpr int kAhead = sizeof(T) == 4 ? 16 : sizeof(T) == 8 ? 8 : 4;  // loads in flight

  static __host__ __device__ int64_t padded(int n) {
    return (int64_t{n} + kBlock - 1) / kBlock * kBlock;
  }
  // Pairs of tiles, of which one is in use and the others are on their way: more where few blocks
  // share a multiprocessor.
  static __host__ __device__ int stages(int warps) {
    return warps > 8 ? 3 : 2;
  }
  static __host__ size_t bytes(int n, int warps) {
    const int64_t sums = 2 * std::max(1, warps - 1) * R * kBlock;
    const size_t work = (2 * stages(warps) * kTile + sums) * sizeof(T);
    return R * padded(n) * sizeof(T) + std::max(work, order_scratch(n) * sizeof(int32_t));
  }
};

// The triangles of pass 0 and 1 by positions, which are padded to a multiple of 32. Places n and
// beyond do not exist: the last positions of pass 0, the first ones of pass 1.
template <typename T, bool kTransposed>
struct Triangles {
  const T* lu;
  int64_t lda;
  int n, rows, blocks;

  __device__ __forceinline__ int place(int pass, int position) const {
    return pass == 0 ? position : rows - 1 - position;
  }
  __device__ __forceinline__ const T* at(int row, int column) const {
    return kTransposed ? lu + column + row * lda : lu + row + column * lda;
  }
};

// One of the warps that read the factor.
template <typename T, int R, bool kTransposed>
class PassWorker {
  using Pass = PassSolve<T, R>;
  static constexpr int B = Pass::kBlock, S = Pass::kStep, A = Pass::kAhead;
  static constexpr int G = kTransposed ? 2 : 1;  // rows of a transposed factor at once
  static constexpr int C = A / G;                // and reads of each in a round

 public:
  __device__ __forceinline__ PassWorker(
      const Triangles<T, kTransposed>& a, const T* x, T* sums, int worker, int workers, int sign)
      : a_(a),
        x_(x),
        sums_(sums),
        worker_(worker),
        workers_(workers),
        sign_(sign),
        lane_(threadIdx.x % 32),
        more_(a.blocks > 2) {
#pragma unroll
    for (int i = 0; i < A; ++i) {
      l_[i] = zero<T>();
    }
    begin();
  }

  // Begins to bring to shared memory what the first warp needs in `phase`, if there is one.
  __device__ __forceinline__ void stage(int phase, T* beside) const {
    if (phase < 2 * a_.blocks) {
      const int pass = phase < a_.blocks ? 0 : 1, block = phase - pass * a_.blocks;
      if (block > 0) {
        copy_tile(beside, pass, block, block - 1);
      }
      copy_tile(beside + Pass::kTile, pass, block, block);
    }
    __pipeline_commit();
  }

  // Sums what positions before block - 1 contribute to the block of `phase`, and reads what the
  // first round of the next phase needs.
  __device__ __forceinline__ void contribute(int phase) {
    while (more_ && pass_ * a_.blocks + block_ == phase) {
      add();
      if (last()) {
        store(phase);
        next_line();
      } else {
        from_ += kTransposed ? C : C * workers_;
      }
      load();
    }
  }

  // Reads the next round.
  __device__ __forceinline__ void load() {
    if (!more_) {
      return;
    }
    if constexpr (kTransposed) {
      // Along a row memory is contiguous: a lane has every 32nd position.
      const int column = a_.place(pass_, from_ * B + lane_);
      const bool there = column < a_.n;  // else it is in the first chunk of pass 1
#pragma unroll
      for (int g = 0; g < G; ++g) {
        const int line = line_ + g * workers_;
        if (line < B) {
          const int row = min(a_.place(pass_, block_ * B + line), a_.n - 1);
          const T* const first = a_.at(row, column);
          if (pass_ == 0) {
            load_chunks<B>(first, there, g);
          } else {
            load_chunks<-B>(first, there, g);
          }
        }
      }
    } else {
      const int row = min(a_.place(pass_, block_ * B + lane_), a_.n - 1);
      const int64_t step = (pass_ == 0 ? workers_ : -workers_) * a_.lda;
      const T* from = a_.at(row, a_.place(pass_, from_));
      const int known = (block_ - 1) * B;
#pragma unroll
      for (int i = 0; i < C; ++i) {
        if (from_ + i * workers_ < known) {
          l_[i] = *from;
        }
        from += step;
      }
    }
  }

 private:
  __device__ __forceinline__ void begin() {
    line_ = worker_;
    from_ = 0;
    if constexpr (!kTransposed) {
      from_ = worker_;
      // Positions without a place contribute nothing.
      while (pass_ == 1 && from_ < a_.rows - a_.n) {
        from_ += workers_;
      }
    }
#pragma unroll
    for (int i = 0; i < G * R; ++i) {
      total_[i] = zero<T>();
    }
  }

  __device__ __forceinline__ bool last() const {
    return kTransposed ? from_ + C >= block_ - 1 : from_ + C * workers_ >= (block_ - 1) * B;
  }

  __device__ __forceinline__ void next_line() {
    const int line = line_ + G * workers_;
    if (!kTransposed || line >= B) {
      ++block_;
      if (block_ == a_.blocks) {
        block_ = 2;  // the first that blocks other than its neighbour contribute to
        ++pass_;
        more_ = pass_ < 2;
      }
      begin();
    } else {
      begin();
      line_ = line;
    }
  }

  template <int kDirection>
  __device__ __forceinline__ void load_chunks(const T* first, bool there, int g) {
    const int count = block_ - 1 - from_;
#pragma unroll
    for (int i = 0; i < C; ++i) {
      if (i < count) {
        l_[i * G + g] = i > 0 || there ? first[kDirection * i] : zero<T>();
      }
    }
  }

  __device__ __forceinline__ void add() {
    if constexpr (kTransposed) {
      const T* const first = x_ + a_.place(pass_, from_ * B + lane_);
      if (pass_ == 0) {
        add_chunks<B>(first);
      } else {
        add_chunks<-B>(first);
      }
    } else {
      const T* at = x_ + a_.place(pass_, from_);
      const int step = pass_ == 0 ? workers_ : -workers_, known = (block_ - 1) * B;
#pragma unroll
      for (int i = 0; i < C; ++i) {
        const int active = from_ + i * workers_ < known;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const T value = active != 0 ? at[r * a_.rows] : zero<T>();
          subtract_product_if(active, total_[r], l_[i], value);
        }
        at += step;
      }
    }
  }

  template <int kDirection>
  __device__ __forceinline__ void add_chunks(const T* first) {
    const int count = block_ - 1 - from_;
#pragma unroll
    for (int i = 0; i < C; ++i) {
      if (i < count) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const T value = first[kDirection * i + r * a_.rows];
#pragma unroll
          for (int g = 0; g < G; ++g) {
            T& total = total_[g * R + r];
            total = subtract_product(total, conjugate(l_[i * G + g], sign_), value);
          }
        }
      }
    }
  }

  __device__ __forceinline__ void store(int phase) const {
    T* const to = sums_ + (phase & 1) * workers_ * R * B;
    if constexpr (kTransposed) {
#pragma unroll
      for (int g = 0; g < G; ++g) {
        const int line = line_ + g * workers_;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const T all = warp_sum(total_[g * R + r]);
          if (lane_ == 0 && line < B) {
            to[r * B + line] = all;
          }
        }
      }
    } else {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        to[(worker_ * R + r) * B + lane_] = total_[r];
      }
    }
  }

  // Rows of one block and columns of another, every line (contiguous in memory) by a warp.
  __device__ __forceinline__ void copy_tile(T* to, int pass, int rows_of, int columns_of) const {
    const int first_line = (kTransposed ? rows_of : columns_of) * B;
    const int along = a_.place(pass, (kTransposed ? columns_of : rows_of) * B + lane_);
    const int step = pass == 0 ? workers_ : -workers_;
    int line = a_.place(pass, first_line + worker_);
    const T* from = kTransposed ? a_.at(line, along) : a_.at(along, line);
    to += kTransposed ? lane_ * S + worker_ : worker_ * S + lane_;
#pragma unroll 2
    for (int done = worker_; done < B; done += workers_) {
      const bool there = line < a_.n && along < a_.n;
      __pipeline_memcpy_async(to, there ? from : a_.lu, sizeof(T), there ? 0 : sizeof(T));
      line += step;
      from += step * a_.lda;
      to += kTransposed ? workers_ : workers_ * S;
    }
  }

  const Triangles<T, kTransposed> a_;
  const T* const x_;
  T* const sums_;
  const int worker_, workers_, sign_, lane_;
  // Where the round that was read last belongs.
  int pass_ = 0, block_ = 2, line_ = 0, from_ = 0;
  bool more_;
  T l_[A], total_[G * R];
};

// The block of 32 positions that the first warp solves, a position a lane. kUnit: the triangle with
// ones on its diagonal, which is the second one of a transposed factor.
template <typename T, int R, bool kTransposed, bool kUnit>
class PassBlock {
  using Pass = PassSolve<T, R>;
  static constexpr int B = Pass::kBlock, S = Pass::kStep;
  static constexpr int Q = 4;  // positions that every lane solves for itself
  static constexpr int kPass = kTransposed == kUnit ? 1 : 0;

 public:
  // tile: the one beside the diagonal and, behind it, the diagonal one.
  static __device__ __forceinline__ void solve(
      const Triangles<T, kTransposed>& a,
      T* x,
      const T* sums,
      const T* tile,
      int workers,
      int sign,
      int block) {
    const int lane = threadIdx.x % 32, rows = a.rows;
    const T* const diagonal = tile + Pass::kTile;
    const int row = a.place(kPass, block * B + lane);
    T v[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      v[r] = x[r * rows + row];
    }
    Divisor<T> divisor;
    if constexpr (!kUnit) {
      const T own = conjugate(diagonal[lane * S + lane], sign);
      divisor = Divisor<T>::of(row < a.n ? own : one<T>());
    }
    if (block > 1) {
      const T* const from = sums + ((kPass * a.blocks + block) & 1) * workers * R * B;
#pragma unroll 8
      for (int w = 0; w < (kTransposed ? 1 : workers); ++w) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
          v[r] = sum(v[r], from[(w * R + r) * B + lane]);  // products were subtracted from zero
        }
      }
    }
    if (block > 0) {
      subtract_neighbour(v, x + a.place(kPass, (block - 1) * B), rows, tile, sign, lane);
    }
    Few now, next;
    now.read(diagonal, divisor, sign, 0, lane);
#pragma unroll
    for (int first = 0; first < B; first += Q) {
      if (first + Q < B) {
        next.read(diagonal, divisor, sign, first + Q, lane);
      }
      now.solve(v, first, lane);
      now = next;
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (row < a.n) {
        x[r * rows + row] = v[r];
      }
    }
  }

 private:
  // What the block before contributes. Where its positions have no place, tile and x are zero.
  static __device__ __forceinline__ void subtract_neighbour(
      T (&v)[R], const T* before, int rows, const T* beside, int sign, int lane) {
    constexpr int W = Pack<T>::size < 2 ? 2 : Pack<T>::size;
    constexpr int kReads = sizeof(T) == 4 ? 4 : 2;  // in flight
#pragma unroll kReads
    for (int first = 0; first < B; first += W) {
      T l[W];
#pragma unroll
      for (int j = 0; j < W; ++j) {
        l[j] = conjugate(beside[(first + j) * S + lane], sign);
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        T value[W];  // in the order of memory
        const T* const from = before + r * rows + (kPass == 0 ? first : -first - W + 1);
        load_row<T, W>(value, from, 0);
#pragma unroll
        for (int j = 0; j < W; ++j) {
          v[r] = subtract_product(v[r], l[j], value[kPass == 0 ? j : W - 1 - j]);
        }
      }
    }
  }

  // Some positions: all lanes compute all of them, which takes fewer dependent steps than a
  // broadcast of each; then the lanes behind subtract them.
  struct Few {
    // Else registers do not suffice.
    static constexpr bool kEarly = sizeof(T) * R <= 16 && sizeof(T) < 16;
    static constexpr int kHeld = kEarly ? Q : 1;
    const T* diagonal;
    Divisor<T> divisor;
    int sign;
    T among[kHeld][kHeld], own[kHeld];
    Divisor<T> divisors[kHeld];

    // What `solve` will need.
    __device__ __forceinline__ void read(
        const T* tile, const Divisor<T>& mine, int conjugation, int first, int lane) {
      diagonal = tile;
      divisor = mine;
      sign = conjugation;
      if constexpr (kEarly) {
#pragma unroll
        for (int q = 0; q < Q; ++q) {
          if constexpr (!kUnit) {
            divisors[q] = divisor_of(first + q);
          }
#pragma unroll
          for (int later = q + 1; later < Q; ++later) {
            among[q][later] = element(first + later, first + q);
          }
          own[q] = element(lane, first + q);
        }
      }
    }

    __device__ __forceinline__ void solve(T (&v)[R], int first, int lane) const {
      T y[Q][R];
#pragma unroll
      for (int q = 0; q < Q; ++q) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
          y[q][r] = shuffle(v[r], first + q, 32);
        }
      }
      const int behind = lane >= first + Q;
#pragma unroll
      for (int q = 0; q < Q; ++q) {
        if constexpr (!kUnit) {
          const Divisor<T> by = kEarly ? divisors[kEarly ? q : 0] : divisor_of(first + q);
#pragma unroll
          for (int r = 0; r < R; ++r) {
            y[q][r] = quotient(y[q][r], by);
          }
        }
#pragma unroll
        for (int later = q + 1; later < Q; ++later) {
          const T l = kEarly ? among[kEarly ? q : 0][kEarly ? later : 0]
                             : element(first + later, first + q);
#pragma unroll
          for (int r = 0; r < R; ++r) {
            y[later][r] = subtract_product(y[later][r], l, y[q][r]);
          }
        }
        const T l = kEarly ? own[kEarly ? q : 0] : element(lane, first + q);
#pragma unroll
        for (int r = 0; r < R; ++r) {
          subtract_product_if(behind, v[r], l, y[q][r]);
          v[r] = select(lane == first + q, y[q][r], v[r]);
        }
      }
    }

   private:
    __device__ __forceinline__ T element(int row, int column) const {
      return conjugate(diagonal[column * S + row], sign);
    }
    __device__ __forceinline__ Divisor<T> divisor_of(int position) const {
      Divisor<T> found;
      found.inverse = shuffle(divisor.inverse, position, 32);
      found.scale = shuffle(divisor.scale, position, 32);
      return found;
    }
  };
};

}  // namespace at::native::batched_native
