// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/trace_file.hpp>

#include <ostrakon/base/error.hpp>
#include <utility>

namespace ostrakon::train {

void TraceFile::add(const std::string& part) {
  const auto bytes = static_cast<std::int64_t>(part.size());
  try {
    if (failure_.empty()) file_.write(at_, bytes, part.data());
  } catch (const std::exception& error) {
    failure_ = error.what();
  }
  at_ += bytes;
}

void TraceFile::end_step(const std::string& end) {
  add(end);
  at_ -= static_cast<std::int64_t>(end.size());
  require(failure_.empty(), failure_);
}

void TraceFile::close() {
  if (!std::exchange(is_open_, false)) return;
  file_.sync();
  file_.close();
}

}  // namespace ostrakon::train
