// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/run/trace_recorder.hpp>

#include "support/no_files.hpp"
#include "support/scratch_folder.hpp"

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

TEST(TraceFile, WhatCanNotBeWrittenWaits) {
  const ScratchFolder folder;
  const std::string path = folder.file("trace.json");
  TraceFile file(path);
  file.add("[1");
  EXPECT_EQ(file.end_step("]"), "");
  {
    const tests::NoFiles beyond(4);
    for (const char* part : {", 2", ", 3"}) {
      file.add(part);
      EXPECT_EQ(file.end_step("]"), "can't write '" + path + "': File too large");
    }
  }
  file.add(", 4");
  EXPECT_EQ(file.end_step("]"), "");
  EXPECT_EQ(read_bytes(path), "[1, 2, 3, 4]");
  TraceFile full("/dev/full");
  full.add("[1");
  full.end_step("]");
  for (int close = 0; close < 2; ++close)
    EXPECT_EQ(error_of([&] { full.close(); }), "can't write '/dev/full': No space left on device");
}

TEST(TraceFile, IsClosedAsSoonAsThereIsRoom) {
  const ScratchFolder folder;
  const std::string path = folder.file("trace.json");
  TraceFile file(path);
  {
    const tests::NoFiles beyond(1);
    file.add("[1");
    file.end_step("]");
    EXPECT_EQ(file.retry(), "can't write '" + path + "': File too large");
    EXPECT_EQ(error_of([&] { file.close(); }), "can't write '" + path + "': File too large");
  }
  file.close();
  EXPECT_EQ(read_bytes(path), "[1]");
  file.close();
}

}  // namespace
}  // namespace ostrakon::train
