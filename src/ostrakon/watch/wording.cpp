// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/watch/wording.hpp>

#include <cstdio>
#include <ostrakon/base/error.hpp>

namespace ostrakon::watch {

std::string shown_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

std::string place_of(const Record& record) {
  if (!record.in_run) {
    const char* const occupation = traits(record.occupation).name;
    if (record.call[0] == '\0') return occupation;
    return text(record.call, ", ", occupation, " after step ", record.step);
  }
  const bool trains = plan::trains(record.purpose);
  return text(record.what[0] == '\0' ? "its plan" : record.what, " of ",
              trains ? text("step ", record.step)
                     : text(plan::name(record.purpose), " after step ", record.step));
}

std::string doing(const Record& record) {
  const std::string time = text(" for ", shown_seconds(record.seconds));
  const std::string place = place_of(record);
  if (record.reads_data) return text("reading data in ", place, time);
  if (!record.in_run && record.call[0] == '\0')
    return text(place, record.step > 0 ? text(" after step ", record.step) : "", time);
  return text("in ", place, time);
}

}  // namespace ostrakon::watch
