// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/trace_recorder.hpp>

#include <algorithm>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/runtime/trace.hpp>

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

void TraceRecorder::open(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  require(!error, path, " of an earlier run can't be removed: ", error.message());
  if (count_ > 0) file_.emplace(path);
}

void TraceRecorder::begin(std::int64_t first, std::int64_t last, double origin) {
  first_ = std::min(first + 1, last);
  origin_ = origin;
}

void TraceRecorder::record(std::int64_t step, const runtime::Program& program,
                           const std::vector<runtime::ActionTime>& times,
                           comm::Communicator& world) {
  const bool is_root = world.rank() == 0;
  if (step < first_ || step >= first_ + count_) {
    if (is_root && !why_.empty()) why_ = file_->retry();
    return;
  }
  std::string part;
  if (step == first_) {
    part = runtime::begin_trace();
    int rank = 0;
    for (const std::string& host : world.gather_texts(host_name()))
      part += runtime::trace_rank(rank++, host);
  }
  const std::string mine = runtime::trace_step(program, times, world.rank(), step, origin_);
  // This overwrites the end that the step before has written.
  if (is_root) file_->add(part);
  world.gather_texts_on_root(mine, [&](int, const std::string& of_rank) { file_->add(of_rank); });
  world.run_on_root([&] { why_ = file_->end_step(runtime::end_trace()); });
}

void TraceRecorder::close() {
  if (file_) file_->close();
  why_.clear();
}

}  // namespace ostrakon::train
