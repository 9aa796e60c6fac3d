// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>

#include "commands.hpp"

namespace ostrakon::apps::data_program {
namespace {

/// Bytes of files that tell how many ids the rest will have.
constexpr std::int64_t enough_bytes = 4 << 20;

std::string duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  if (whole < 60) return text(whole, " s");
  if (whole < 3600) return text(whole / 60, " min ", whole % 60, " s");
  return text(whole / 3600, " h ", whole / 60 % 60, " min");
}

std::string bar(double share) {
  constexpr int width = 24;
  const int full = std::clamp(static_cast<int>(share * width), 0, width);
  return "[" + std::string(static_cast<std::size_t>(full), '#') +
         std::string(static_cast<std::size_t>(width - full), '.') + "] ";
}

}  // namespace

ProgressLine::ProgressLine(std::int64_t bytes, std::int64_t id_bytes)
    : bytes_(bytes), id_bytes_(id_bytes), is_terminal_(isatty(STDERR_FILENO) != 0) {}

void ProgressLine::tell(const texts::Progress& progress) {
  if (first_taken_ < 0) first_taken_ = progress.taken;
  const double now = clock_.seconds();
  if (now - told_ < (is_terminal_ ? 0.2 : 10.0)) return;
  told_ = now;
  if (!is_terminal_) {
    std::cerr << line(progress) << std::endl;
    return;
  }
  const double share =
      bytes_ > 0 ? static_cast<double>(progress.taken) / static_cast<double>(bytes_) : 0.0;
  std::cerr << "\r\x1b[K" << (bytes_ > 0 ? bar(share) : "") << line(progress) << std::flush;
  is_shown_ = true;
}

void ProgressLine::clear() {
  if (is_shown_) std::cerr << "\r\x1b[K" << std::flush;
  is_shown_ = false;
}

std::int64_t ProgressLine::expected_ids(const texts::Progress& progress) const {
  if (bytes_ == 0 || progress.taken < enough_bytes) return 0;
  return static_cast<std::int64_t>(static_cast<double>(progress.state.ids) *
                                   static_cast<double>(bytes_) /
                                   static_cast<double>(progress.taken));
}

std::string ProgressLine::line(const texts::Progress& progress) const {
  const double seconds = std::max(clock_.seconds(), 1e-3);
  const double rate = static_cast<double>(progress.text_bytes) / seconds;
  std::string told = print("%.1f MB/s", rate / 1e6);
  if (bytes_ == 0)
    return text(told, ", ", format_bytes(progress.taken), " read, ",
                format_count(progress.state.ids), " tokens");
  const double percent = 100.0 * static_cast<double>(progress.taken) / static_cast<double>(bytes_);
  told = text(print("%.0f", percent), "% of ", format_bytes(bytes_), ", ", told);
  const auto taken = static_cast<double>(progress.taken - first_taken_);
  if (taken > 0.0)
    told +=
        ", " + duration(seconds * static_cast<double>(bytes_ - progress.taken) / taken) + " left";
  const std::int64_t ids = expected_ids(progress);
  if (ids > 0)
    told += text(", about ", format_count(ids), " tokens, ", format_bytes(ids * id_bytes_));
  return told;
}

}  // namespace ostrakon::apps::data_program
