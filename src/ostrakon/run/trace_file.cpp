// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/trace_file.hpp>

#include <ostrakon/base/error.hpp>

namespace ostrakon::train {

void TraceFile::add(const std::string& part) {
  const bool is_next = waiting_.empty();
  waiting_ += part;
  if (!is_next) return;
  try {
    write_waiting();
  } catch (const Error&) {
    // end_step() tries again.
  }
}

void TraceFile::write_waiting() {
  const auto bytes = static_cast<std::int64_t>(waiting_.size());
  file_.write(at_, bytes, waiting_.data());
  at_ += bytes;
  waiting_.clear();
}

std::string TraceFile::end_step(const std::string& end) {
  end_ = end;
  return retry();
}

std::string TraceFile::retry() {
  if (end_.empty()) return "";
  try {
    write_waiting();
    file_.write(at_, static_cast<std::int64_t>(end_.size()), end_.data());
  } catch (const Error& error) {
    return error.what();
  }
  end_.clear();
  return "";
}

void TraceFile::close() {
  if (!is_open_) return;
  const std::string why = retry();
  require(why.empty(), why);
  file_.sync();
  file_.close();
  is_open_ = false;
}

}  // namespace ostrakon::train
