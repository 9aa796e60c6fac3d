// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/checkpoint/manifest_text.hpp>
#include <set>
#include <tuple>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

constexpr std::int64_t most_bytes_of_files = std::numeric_limits<std::int64_t>::max();
/// Limit of counts: no run reaches it, and larger ones could overflow or lose precision.
constexpr std::int64_t most_counted = std::int64_t{1} << 53;

class Check {
 public:
  Check(const Manifest& manifest, const std::vector<ParameterRow>& rows, const std::string& title)
      : manifest_(manifest), rows_(rows), where_(title + ": ") {}

  void run() const {
    check_progress();
    check_parameters();
    check_files();
    check_coverage();
  }

 private:
  void check_progress() const {
    const Progress& progress = manifest_.progress;
    check_count("sequence", manifest_.sequence, most_counted);
    check_count("step", progress.step, most_counted);
    check_count("updates", progress.updates, most_counted);
    check_count("samples", progress.samples, most_counted);
    check_count("audited_step", progress.audited_step, progress.step);
    check_count("skipped_in_a_row", progress.skipped_in_a_row, std::numeric_limits<int>::max());
    require(progress.updates <= progress.step, where_, "it has ", progress.updates,
            " updates after ", progress.step, " steps; expected at most one for each");
    require(progress.loss_scale > 0.0, where_, "loss_scale is ", progress.loss_scale,
            "; expected more than 0");
  }

  void check_count(const char* key, std::int64_t count, std::int64_t most) const {
    require(count <= most, where_, key, " is ", count, "; expected at most ", most);
  }

  void check_parameters() const {
    require(!rows_.empty(), where_, "it has no parameters");
    std::set<std::string> paths;
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const ParameterEntry& entry = manifest_.parameters[i];
      require(paths.insert(entry.path()).second, where_, "the parameter ", shown(entry.path()),
              " is there twice");
      const DType type = dtype(State::parameters);
      require(rows_[i].type == type, where_, shown(entry.path()), " is ", name(rows_[i].type),
              "; numbers.parameters is ", name(type));
      require(rows_[i].offset == elements, where_, "the offset of ", shown(entry.path()), " is ",
              rows_[i].offset, "; expected ", elements, ", the elements before it");
      elements += checked_elements(entry, most_elements - elements);
      require(entry.column_pieces == 1 ||
                  (entry.shape.size() == 2 && entry.shape[1] % entry.column_pieces == 0),
              where_, shown(entry.path()), " of the shape ", hdf5::shape_text(entry.shape),
              " has its columns in ", entry.column_pieces, " pieces; expected a divisor");
    }
  }

  /// Returns the number of elements; throws Error if it is above `most`.
  std::int64_t checked_elements(const ParameterEntry& entry, std::int64_t most) const {
    std::int64_t elements = 1;
    for (const std::int64_t extent : entry.shape) {
      require(elements <= most / extent, where_, shown(entry.path()), " has the shape ",
              hdf5::shape_text(entry.shape), "; expected at most ", most_elements,
              " elements in all parameters together");
      elements *= extent;
    }
    require(elements <= most, where_, shown(entry.path()), " makes more than ", most_elements,
            " elements in all parameters together");
    return elements;
  }

  void check_files() const {
    std::set<std::string> names;
    std::int64_t bytes = 0;
    for (const FileEntry& file : manifest_.files) {
      require(file.name != "manifest.json", where_, "it names itself among its files");
      require(names.insert(file.name).second, where_, "the file ", shown(file.name),
              " is there twice");
      require(file.bytes <= most_bytes_of_files - bytes, where_,
              "its files have more than 2^63 - 1 bytes");
      bytes += file.bytes;
      for (std::size_t i = 0; i < file.pieces.size(); ++i) check_piece(file, i);
      check_overlap(file);
    }
  }

  void check_piece(const FileEntry& file, std::size_t index) const {
    const PieceEntry& piece = file.pieces[index];
    const Slice& slice = piece.slice;
    const auto wrong = [&](const auto&... what) {
      throw Error(text(where_, "piece ", index, " of ", shown(file.name), " ", what...));
    };
    if (static_cast<std::size_t>(slice.parameter) >= rows_.size())
      wrong("is of parameter ", slice.parameter, "; there are ", rows_.size());
    if (piece.rank >= manifest_.ranks)
      wrong("is of rank ", piece.rank, "; there are ", manifest_.ranks);
    const ParameterEntry& entry = manifest_.parameters[static_cast<std::size_t>(slice.parameter)];
    const std::int64_t elements = entry.elements();
    if (slice.first > elements || slice.count > elements - slice.first)
      wrong("is ", slice.count, " elements from ", slice.first, " on of ", shown(entry.path()),
            ", which has ", elements);
    if (piece.offset > file.bytes || bytes_of(piece) > file.bytes - piece.offset)
      wrong("is ", bytes_of(piece), " bytes from ", piece.offset, " on; the file has ", file.bytes);
    const std::int64_t blocks = (bytes_of(piece) - 1) / block_bytes + 1;
    if (static_cast<std::int64_t>(piece.checksums.size()) != blocks)
      wrong("has ", piece.checksums.size(), " checksums; expected ", blocks, ", one for each ",
            block_bytes, " bytes");
  }

  void check_overlap(const FileEntry& file) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> extents;  // offset, bytes
    extents.reserve(file.pieces.size());
    for (const PieceEntry& piece : file.pieces) extents.emplace_back(piece.offset, bytes_of(piece));
    std::sort(extents.begin(), extents.end());
    for (std::size_t i = 1; i < extents.size(); ++i)
      require(extents[i - 1].first + extents[i - 1].second <= extents[i].first, where_,
              "two pieces of ", shown(file.name), " have its byte ", extents[i].first);
  }

  /// Checks that the pieces cover each array exactly once; moments and averages may be absent.
  void check_coverage() const {
    std::vector<Slice> slices;
    for (const FileEntry& file : manifest_.files)
      for (const PieceEntry& piece : file.pieces) slices.push_back(piece.slice);
    std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
      return std::tie(a.state, a.parameter, a.first) < std::tie(b.state, b.parameter, b.first);
    });
    auto next = slices.begin();
    for (int state = 0; state < states; ++state)
      for (int parameter = 0; parameter < static_cast<int>(rows_.size()); ++parameter) {
        const auto begin = next;
        while (next != slices.end() && static_cast<int>(next->state) == state &&
               next->parameter == parameter)
          ++next;
        if (begin != next || state == static_cast<int>(State::parameters))
          check_array(static_cast<State>(state), parameter, begin, next);
      }
  }

  void check_array(State state, int parameter, std::vector<Slice>::const_iterator begin,
                   std::vector<Slice>::const_iterator end) const {
    const ParameterEntry& entry = manifest_.parameters[static_cast<std::size_t>(parameter)];
    const auto missing = [&](std::int64_t first, std::int64_t last) {
      require(first == last, where_, "elements ", first, " to ", last, " of ", name(state), " of ",
              shown(entry.path()), " are in no piece");
    };
    std::int64_t at = 0;
    for (auto slice = begin; slice != end; ++slice) {
      require(slice->first >= at, where_, "elements ", slice->first, " to ",
              std::min(at, slice->first + slice->count), " of ", name(state), " of ",
              shown(entry.path()), " are in two pieces");
      missing(at, slice->first);
      at = slice->first + slice->count;
    }
    missing(at, entry.elements());
  }

  DType dtype(State state) const { return manifest_.dtypes[static_cast<std::size_t>(state)]; }
  std::int64_t bytes_of(const PieceEntry& piece) const {
    return piece.slice.count * ostrakon::bytes_of(dtype(piece.slice.state));
  }

  static constexpr std::int64_t most_elements =
      most_bytes_of_files / 4;  // limit, so that bytes do not overflow

  const Manifest& manifest_;
  const std::vector<ParameterRow>& rows_;
  std::string where_;
};

}  // namespace

void check_manifest(const Manifest& manifest, const std::vector<ParameterRow>& rows,
                    const std::string& title) {
  Check(manifest, rows, title).run();
}

}  // namespace ostrakon::checkpoint
