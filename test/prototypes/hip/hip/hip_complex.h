// Complex numbers.
#pragma once

struct float2 {
  float x, y;
};
struct alignas(16) double2 {
  double x, y;
};
typedef float2 hipFloatComplex;
typedef double2 hipDoubleComplex;
typedef hipFloatComplex hipComplex;
