// Half precision: only the type's name.
#pragma once

struct __half {
  unsigned short bits;
};
