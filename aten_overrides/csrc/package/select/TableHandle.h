#pragma once

// What the opaque handle of the C interface holds.

#include "CostTable.h"

struct aten_overrides_select_table {
  aten_overrides::select::CostTable costs;
  int lanes;  // streams behind the streamed times
};
