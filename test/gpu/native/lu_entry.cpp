// C entry points to the batched LU for the GPU tests and the benchmark, which call it through
// ctypes.
#include <ATen/native/cuda/linalg/native/BatchedLU.h>

#include <exception>
#include <string>

namespace native = at::native::batched_native;

namespace {
thread_local std::string message;

native::LuProblem problem_of(int scalar, int64_t batch, int64_t m, int64_t n, int pivot) {
  return {static_cast<native::Scalar>(scalar), batch, m, n, pivot != 0};
}

// leaf, outer or resident of 0 keeps the plan's own; route below 0 likewise.
native::LuPlan plan_of(
    const native::LuProblem& problem, int route, int leaf, int outer, int resident) {
  native::LuPlan plan = native::lu_plan(problem);
  if (route >= 0) {
    plan.route = static_cast<native::LuRoute>(route);
  }
  plan.leaf = leaf > 0 ? leaf : (plan.leaf > 0 ? plan.leaf : 64);
  plan.outer = outer > 0 ? outer : (plan.outer > 0 ? plan.outer : 128);
  plan.resident = resident > 0 ? resident : plan.resident;
  return plan;
}
}  // namespace

extern "C" {

__attribute__((visibility("default"))) const char* lu_message() {
  return message.c_str();
}

__attribute__((visibility("default"))) int lu_route(
    int scalar, int64_t batch, int64_t m, int64_t n, int pivot) {
  return static_cast<int>(native::lu_plan(problem_of(scalar, batch, m, n, pivot)).route);
}

__attribute__((visibility("default"))) size_t lu_workspace_bytes(
    int scalar,
    int64_t batch,
    int64_t m,
    int64_t n,
    int pivot,
    int route,
    int leaf,
    int outer,
    int resident) {
  const auto problem = problem_of(scalar, batch, m, n, pivot);
  return native::lu_workspace(problem, plan_of(problem, route, leaf, outer, resident));
}

__attribute__((visibility("default"))) int lu_run(
    int scalar,
    int64_t batch,
    int64_t m,
    int64_t n,
    int pivot,
    int route,
    int leaf,
    int outer,
    int resident,
    void* a,
    int64_t lda,
    int64_t stride,
    int32_t* pivots,
    int64_t pivot_stride,
    int32_t* info,
    void* workspace,
    size_t workspace_bytes,
    void* handle,
    void* stream) {
  try {
    const auto problem = problem_of(scalar, batch, m, n, pivot);
    native::lu_factor(
        problem,
        plan_of(problem, route, leaf, outer, resident),
        a,
        lda,
        stride,
        pivots,
        pivot_stride,
        info,
        workspace,
        workspace_bytes,
        static_cast<cublasHandle_t>(handle),
        static_cast<cudaStream_t>(stream));
    return 0;
  } catch (const std::exception& error) {
    message = error.what();
    return 1;
  }
}

}  // extern "C"
