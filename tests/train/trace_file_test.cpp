// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/train/trace_file.hpp>

#include "../support/scratch_folder.hpp"

namespace ostrakon::train {
namespace {

using testing::error_of;
using testing::read_bytes;
using testing::ScratchFolder;

TEST(TraceFile, IsWholeAfterEachStep) {
  const ScratchFolder folder;
  TraceFile file(folder.file("trace.json"));
  file.add("[1");
  file.end_step("]");
  EXPECT_EQ(read_bytes(folder.file("trace.json")), "[1]");
  file.add(", 2");
  file.add(", 3");
  file.end_step("]");
  file.close();
  EXPECT_EQ(read_bytes(folder.file("trace.json")), "[1, 2, 3]");
}

TEST(TraceFile, SaysWhyAStepIsNotInIt) {
  TraceFile file("/dev/full");
  file.add("[1");
  const std::string error = error_of([&] { file.end_step("]"); });
  EXPECT_EQ(error, "can't write '/dev/full': No space left on device");
}

}  // namespace
}  // namespace ostrakon::train
