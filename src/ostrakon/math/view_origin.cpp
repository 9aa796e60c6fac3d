// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/view_origin.hpp>

#include <ostrakon/base/error.hpp>

namespace ostrakon {
namespace {

/// `what`: "index 7", `extents`: "(4, 8)".
[[noreturn]] void end_run(const ViewOrigin* origin, const std::string& what,
                          const std::string& extents) {
  const bool freed = origin != nullptr && !origin->live.load(std::memory_order_relaxed);
  std::string message = text("ostrakon: ", what, freed ? " of" : " is outside of", " a view of ");
  message += origin == nullptr ? std::string("an array") : text("buffer '", origin->buffer, "'");
  message += text(" with extents ", extents);
  if (origin != nullptr) message += text(", made for ", origin->action);
  if (freed) message += ": used after that action, when the plan may have freed the buffer";
  Kokkos::abort(message.c_str());
}

}  // namespace

void end_at_index(const ViewOrigin* origin, std::int64_t i, std::int64_t extent) {
  end_run(origin, text("index ", i), text("(", extent, ")"));
}

void end_at_index(const ViewOrigin* origin, std::int64_t row, std::int64_t column,
                  std::int64_t rows, std::int64_t columns) {
  end_run(origin, text("index (", row, ", ", column, ")"), text("(", rows, ", ", columns, ")"));
}

void end_at_range(const ViewOrigin* origin, const char* of_what, std::int64_t begin,
                  std::int64_t end, std::int64_t extent) {
  end_run(origin, text(of_what, " [", begin, ", ", end, ")"), text("(", extent, ")"));
}

}  // namespace ostrakon
