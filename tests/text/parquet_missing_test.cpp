// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/text/sources/record_reader.hpp>

#include "../support/scratch_folder.hpp"

namespace ostrakon::texts {
namespace {

TEST(Parquet, IsRefusedWithWhatToInstall) {
  const testing::ScratchFolder folder;
  testing::write_bytes(folder.file("a"), "PAR1");
  ReadSettings settings;
  settings.sources = {Source::of(folder.file("a"), SourceKind::parquet)};
  EXPECT_FALSE(reads_parquet());
  const std::string error = testing::error_of([&] { RecordReader(settings, {}); });
  EXPECT_HAS(error, "a' is a Parquet file, and this Ostrakon was built without Arrow: install");
  EXPECT_HAS(error, "or write the column as JSON lines");
}

}  // namespace
}  // namespace ostrakon::texts
