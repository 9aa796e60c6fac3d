// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/view_origin.hpp>

#include <ostrakon/base/error.hpp>

namespace ostrakon {
namespace {

bool is_freed(ViewName view) {
  return view.origin != nullptr && !view.origin->live.load(std::memory_order_relaxed);
}

/// Returns a name such as "buffer 'saved of block.3'".
std::string name_of(ViewName view) {
  const std::string buffer =
      view.origin == nullptr ? std::string() : text("buffer '", view.origin->buffer, "'");
  if (!view.exists) return buffer.empty() ? "no array" : "no array in " + buffer;
  return buffer.empty() ? "an array" : buffer;
}

[[noreturn]] void end_run(ViewName view, std::string message) {
  message = "ostrakon: " + message;
  if (view.origin != nullptr) message += text(", made for ", view.origin->action);
  if (is_freed(view))
    message += ": used after that action, when the plan may have freed the buffer";
  Kokkos::abort(message.c_str());
}

/// `what` and `extents` are for the message: "index 7", "(4, 8)".
[[noreturn]] void end_outside(ViewName view, const std::string& what, const std::string& extents) {
  end_run(view, text(what, is_freed(view) ? " of" : " is outside of", " a view of ", name_of(view),
                     " with extents ", extents));
}

}  // namespace

void end_at_index(ViewName view, std::int64_t i, std::int64_t extent) {
  end_outside(view, text("index ", i), text("(", extent, ")"));
}

void end_at_index(ViewName view, std::int64_t row, std::int64_t column, std::int64_t rows,
                  std::int64_t columns) {
  end_outside(view, text("index (", row, ", ", column, ")"), text("(", rows, ", ", columns, ")"));
}

void end_at_range(ViewName view, const char* of_what, std::int64_t begin, std::int64_t end,
                  std::int64_t extent) {
  end_outside(view, text(of_what, " [", begin, ", ", end, ")"), text("(", extent, ")"));
}

void end_at_flat(ViewName view, std::int64_t columns, std::int64_t stride) {
  end_run(view, text("flat() of a view of ", name_of(view), " whose rows don't follow each other: ",
                     columns, " columns, but ", stride, " elements from one row to the next"));
}

void end_at_use(ViewName view) { end_run(view, text("pointer of a view of ", name_of(view))); }

}  // namespace ostrakon
