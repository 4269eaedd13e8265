// Element types as libraries name them.
#pragma once

typedef enum hipDataType {
  HIP_R_32F = 0,
  HIP_R_64F = 1,
  HIP_R_16F = 2,
  HIP_C_32F = 4,
  HIP_C_64F = 5,
  HIP_R_16BF = 14
} hipDataType;
