// C entry points to the batched solve for the tests, which call it through ctypes.
#include <ATen/native/cuda/linalg/native/BatchedLUSolve.h>

#include <exception>
#include <string>

namespace native = at::native::batched_native;

namespace {
thread_local std::string solve_failure;

native::SolveProblem problem_of(
    int scalar, int64_t batch, int64_t n, int64_t nrhs, int64_t lu_batch, int operation) {
  return {
      static_cast<native::Scalar>(scalar),
      batch,
      n,
      nrhs,
      lu_batch,
      operation != 0,
      operation == 2};
}

// 0 keeps the plan's own.
native::SolvePlan plan_of(
    const native::SolveProblem& problem, int pass, int together, int warps, int width) {
  native::SolvePlan plan = native::solve_plan(problem, pass != 0);
  plan.together = together > 0 ? together : plan.together;
  plan.warps = warps > 0 ? warps : plan.warps;
  if (warps > 0 && plan.route == native::SolveRoute::Small) {
    plan.route = native::SolveRoute::Pass;
  }
  if (width > 0 && width < problem.n && plan.route != native::SolveRoute::Pass) {
    plan.route = native::SolveRoute::Blocked;
    plan.width = width;
  }
  return plan;
}
}  // namespace

extern "C" {

__attribute__((visibility("default"))) const char* solve_message() {
  return solve_failure.c_str();
}

__attribute__((visibility("default"))) size_t solve_workspace_bytes(
    int scalar, int64_t batch, int64_t n, int64_t nrhs, int64_t lu_batch, int pass) {
  const auto problem = problem_of(scalar, batch, n, nrhs, lu_batch, 0);
  return native::solve_workspace(problem, native::solve_plan(problem, pass != 0));
}

// operation: 0 A X = B, 1 with the transpose, 2 with the conjugate transpose.
__attribute__((visibility("default"))) int solve_run(
    int scalar,
    int64_t batch,
    int64_t n,
    int64_t nrhs,
    int64_t lu_batch,
    int operation,
    int pass,
    int together,
    int warps,
    int width,
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
    void* handle,
    void* stream) {
  try {
    const auto problem = problem_of(scalar, batch, n, nrhs, lu_batch, operation);
    native::lu_solve(
        problem,
        plan_of(problem, pass, together, warps, width),
        lu,
        lda,
        lu_stride,
        pivots,
        pivot_stride,
        b,
        ldb,
        b_stride,
        workspace,
        workspace_bytes,
        static_cast<cublasHandle_t>(handle),
        static_cast<cudaStream_t>(stream));
    return 0;
  } catch (const std::exception& error) {
    solve_failure = error.what();
    return 1;
  }
}

// The row exchanges alone.
__attribute__((visibility("default"))) int exchange_run(
    int scalar,
    int64_t batch,
    int64_t n,
    int64_t nrhs,
    int64_t lu_batch,
    int operation,
    const int32_t* pivots,
    int64_t pivot_stride,
    void* b,
    int64_t ldb,
    int64_t b_stride,
    void* workspace,
    size_t workspace_bytes,
    void* stream) {
  try {
    native::exchange_rows(
        problem_of(scalar, batch, n, nrhs, lu_batch, operation),
        pivots,
        pivot_stride,
        b,
        ldb,
        b_stride,
        workspace,
        workspace_bytes,
        static_cast<cudaStream_t>(stream));
    return 0;
  } catch (const std::exception& error) {
    solve_failure = error.what();
    return 1;
  }
}

}  // extern "C"
