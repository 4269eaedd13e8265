// bfloat16: only the type's name.
#pragma once

struct __hip_bfloat16 {
  unsigned short bits;
};
