#pragma once

#include <ATen/native/cuda/linalg/native/PanelLU.cuh>

// Which shape of the panel kernel factors a panel of so many rows, as measured on an H200
// (NOTES.md). `many`: more panels than the GPU has room for at once.
namespace at::native::batched_native {

// Calls `use` with the shape for panels of `rows` rows; returns false when there is none.
template <typename T, typename Use>
bool with_panel_shape(int rows, bool many, Use&& use) {
  const auto either = [&](auto few_shape, auto many_shape) {
    if (many) {
      use(many_shape);
    } else {
      use(few_shape);
    }
  };
  constexpr int words = sizeof(T) / 4;  // registers an element
  if constexpr (words == 1) {
    if (rows <= 64) {
      either(PanelShape<T, 8, 2, 1, 256, 3>{}, PanelShape<T, 8, 2, 1, 128, 8>{});
    } else if (rows <= 96) {
      either(PanelShape<T, 8, 3, 1, 256, 3>{}, PanelShape<T, 8, 3, 1, 128, 6>{});
    } else if (rows <= 128) {
      either(PanelShape<T, 8, 2, 2, 256, 3>{}, PanelShape<T, 8, 4, 1, 128, 5>{});
    } else if (rows <= 192) {
      either(PanelShape<T, 8, 2, 3, 512, 1>{}, PanelShape<T, 8, 2, 3, 128, 4>{});
    } else if (rows <= 256) {
      either(PanelShape<T, 8, 2, 4, 512, 1>{}, PanelShape<T, 8, 2, 4, 128, 4>{});
    } else if (rows <= 384) {
      either(PanelShape<T, 8, 3, 4, 512, 1>{}, PanelShape<T, 8, 3, 4, 256, 2>{});
    } else if (rows <= 512) {
      either(PanelShape<T, 8, 4, 4, 512, 1>{}, PanelShape<T, 8, 4, 4, 256, 2>{});
    } else if (rows <= 768) {
      use(PanelShape<T, 8, 3, 8, 512, 1>{});
    } else if (rows <= 1024) {
      use(PanelShape<T, 8, 4, 8, 512, 1>{});
    } else if (rows <= 1536) {
      use(PanelShape<T, 8, 4, 12, 512, 1>{});
    } else if (rows <= 2048) {
      use(PanelShape<T, 8, 4, 16, 512, 1>{});
    } else if (rows <= 4096) {
      use(PanelShape<T, 4, 8, 16, 512, 1>{});
    } else {
      return false;
    }
  } else if constexpr (words == 2) {
    if (rows <= 64) {
      either(PanelShape<T, 8, 2, 1, 256, 2>{}, PanelShape<T, 8, 2, 1, 128, 4>{});
    } else if (rows <= 96) {
      use(PanelShape<T, 8, 3, 1, 128, 4>{});
    } else if (rows <= 128) {
      either(PanelShape<T, 8, 2, 2, 256, 2>{}, PanelShape<T, 8, 2, 2, 128, 4>{});
    } else if (rows <= 192) {
      use(PanelShape<T, 8, 2, 3, 256, 2>{});
    } else if (rows <= 256) {
      use(PanelShape<T, 8, 2, 4, 256, 2>{});
    } else if (rows <= 384) {
      use(PanelShape<T, 8, 3, 4, 512, 1>{});
    } else if (rows <= 512) {
      use(PanelShape<T, 8, 4, 4, 384, 1>{});
    } else if (rows <= 768) {
      use(PanelShape<T, 8, 3, 8, 512, 1>{});
    } else if (rows <= 1024) {
      use(PanelShape<T, 8, 4, 8, 384, 1>{});
    } else if (rows <= 1536) {
      use(PanelShape<T, 4, 4, 12, 512, 1>{});
    } else if (rows <= 2048) {
      use(PanelShape<T, 4, 4, 16, 512, 1>{});
    } else if (rows <= 4096) {
      use(PanelShape<T, 2, 8, 16, 512, 1>{});
    } else {
      return false;
    }
  } else {
    if (rows <= 64) {
      use(PanelShape<T, 8, 2, 1, 128, 3>{});
    } else if (rows <= 96) {
      use(PanelShape<T, 8, 1, 3, 256, 2>{});
    } else if (rows <= 128) {
      use(PanelShape<T, 8, 2, 2, 128, 3>{});
    } else if (rows <= 192) {
      either(PanelShape<T, 8, 2, 3, 256, 1>{}, PanelShape<T, 4, 2, 3, 256, 2>{});
    } else if (rows <= 256) {
      either(PanelShape<T, 8, 2, 4, 256, 1>{}, PanelShape<T, 4, 2, 4, 256, 2>{});
    } else if (rows <= 384) {
      use(PanelShape<T, 4, 3, 4, 256, 1>{});
    } else if (rows <= 512) {
      use(PanelShape<T, 4, 4, 4, 256, 1>{});
    } else if (rows <= 768) {
      use(PanelShape<T, 4, 3, 8, 512, 1>{});
    } else if (rows <= 1024) {
      use(PanelShape<T, 4, 4, 8, 512, 1>{});
    } else if (rows <= 1536) {
      use(PanelShape<T, 4, 3, 16, 512, 1>{});
    } else if (rows <= 2048) {
      use(PanelShape<T, 4, 4, 16, 512, 1>{});
    } else if (rows <= 4096) {
      use(PanelShape<T, 2, 8, 16, 512, 1>{});
    } else {
      return false;
    }
  }
  return true;
}

// The same for panels that a cluster of two, four or eight blocks shares.
template <typename T, typename Use>
bool with_cluster_shape(int rows, Use&& use) {
  const auto by_rows = [&](auto two, auto four, auto eight, auto taller) {
    constexpr int slice = decltype(two)::kRows;
    if (rows <= 2 * slice) {
      use(two);
    } else if (rows <= 4 * slice) {
      use(four);
    } else if (rows <= 8 * slice) {
      use(eight);
    } else if (rows <= 8 * decltype(taller)::kRows) {
      use(taller);
    } else {
      return false;
    }
    return true;
  };
  constexpr int words = sizeof(T) / 4;
  if constexpr (words == 1) {
    return by_rows(
        PanelShape<T, 8, 2, 4, 512, 1, 2>{},
        PanelShape<T, 8, 2, 4, 512, 1, 4>{},
        PanelShape<T, 8, 2, 4, 512, 1, 8>{},
        PanelShape<T, 8, 4, 4, 512, 1, 8>{});
  } else if constexpr (words == 2) {
    return by_rows(
        PanelShape<T, 8, 2, 4, 384, 1, 2>{},
        PanelShape<T, 8, 2, 4, 384, 1, 4>{},
        PanelShape<T, 8, 2, 4, 384, 1, 8>{},
        PanelShape<T, 8, 4, 4, 256, 1, 8>{});
  } else if (rows <= 1024) {
    use(PanelShape<T, 8, 2, 2, 256, 1, 8>{});
  } else if (rows <= 2048) {
    use(PanelShape<T, 4, 2, 4, 512, 1, 8>{});
  } else if (rows <= 4096) {
    use(PanelShape<T, 4, 4, 4, 256, 1, 8>{});
  } else {
    return false;
  }
  return true;
}

// The widest up to `wanted` that `fits`, where strips may be narrow.
template <typename Fits>
int widest(int wanted, Fits&& fits) {
  int width = wanted;
  while (width > 0 && !fits(width)) {
    width = width > 4 ? (width - 1) / 4 * 4 : width / 2;
  }
  return width;
}

template <typename T>
int panel_width(int rows, int wanted, size_t shared) {
  return widest(wanted, [&](int n) {
    bool both = true;
    for (const bool many : {false, true}) {
      const bool there = with_panel_shape<T>(
          rows, many, [&](auto shape) { both = both && shape.bytes(rows, n) <= shared; });
      both = both && there;
    }
    return both;
  });
}

template <typename T>
int cluster_width(int rows, int wanted, size_t shared) {
  return widest(wanted, [&](int n) {
    bool fits = false;
    with_cluster_shape<T>(rows, [&](auto shape) {
      fits = n <= rows && shape.bytes(rows, n) <= shared && shape.usable();
    });
    return fits;
  });
}

template <typename T>
void launch_panel_lu(const Panel<T>& p, bool many, cudaStream_t stream) {
  with_panel_shape<T>(p.whole.m - p.first, many, [&](auto shape) { shape.launch(p, stream); });
}

template <typename T>
void launch_cluster_lu(const Panel<T>& p, cudaStream_t stream) {
  with_cluster_shape<T>(p.whole.m - p.first, [&](auto shape) { shape.launch(p, stream); });
}

}  // namespace at::native::batched_native
