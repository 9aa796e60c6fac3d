// SPDX-License-Identifier: Apache-2.0
// Stands in for parquet_source.cpp where Arrow was not found.
#include <ostrakon/base/error.hpp>
#include <ostrakon/text/sources/parquet_source.hpp>

namespace ostrakon::texts {

bool reads_parquet() { return false; }

std::unique_ptr<ParquetRows> open_parquet(const std::string& path, const ParquetColumns&,
                                          std::int64_t) {
  throw Error(text("'", path,
                   "' is a Parquet file, and this Ostrakon was built without Arrow: install Arrow "
                   "with Parquet (Spack variant parquet; docs/building.md) and build again; or "
                   "write the column as JSON lines"));
}

}  // namespace ostrakon::texts
