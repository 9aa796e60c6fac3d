// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/generate/stop_string_filter.hpp>

#include <algorithm>

namespace ostrakon::train {
namespace {

/// How many of the last bytes of `text` are the beginning of `stop`, but not all of it.
std::size_t begun(const std::string& text, const std::string& stop) {
  for (std::size_t count = std::min(text.size(), stop.size() - 1); count > 0; --count)
    if (text.compare(text.size() - count, count, stop, 0, count) == 0) return count;
  return 0;
}

}  // namespace

std::string StopStringFilter::add(const std::string& piece) {
  if (is_stopped_) return "";
  held_ += piece;
  std::size_t waiting = 0;
  for (const std::string& stop : stops_) waiting = std::max(waiting, begun(held_, stop));
  const std::size_t open = held_.size() - waiting, end = first_stop();
  // Where a longer one may have begun before one that has come, more has to come first.
  is_stopped_ = end <= open;
  std::string known = held_.substr(0, std::min(end, open));
  held_.erase(0, is_stopped_ ? held_.size() : known.size());
  return known;
}

std::string StopStringFilter::finish() {
  const std::size_t end = first_stop();
  is_stopped_ = is_stopped_ || end != std::string::npos;
  std::string rest = held_.substr(0, end);
  held_.clear();
  return rest;
}

std::size_t StopStringFilter::first_stop() const {
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  return end;
}

}  // namespace ostrakon::train
