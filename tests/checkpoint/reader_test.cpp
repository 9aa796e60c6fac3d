// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <iterator>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <random>

#include "../support/scratch_folder.hpp"
#include "small_checkpoint.hpp"

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

using ostrakon::testing::error_of;
using ostrakon::testing::ScratchFolder;
using testing::all_states;
using testing::holds;
using testing::SmallCheckpoint;

constexpr Files all_files[] = {Files::rank, Files::node, Files::single};

/// A saved checkpoint.
struct Saved {
  explicit Saved(const SmallCheckpoint& small)
      : path(small.save(Folder(scratch.file("checkpoints")), 12, 1)) {}

  std::string file(const std::string& name) const { return path + "/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(path)) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  std::string verify_error() const {
    return error_of([&] { CheckpointReader(path).verify(); });
  }

  ScratchFolder scratch;
  std::string path;
};

TEST(CheckpointReader, ReadsAnySliceWhateverRanksWroteIt) {
  for (const Files files : all_files) {
    for (const int ranks : {1, 2, 3, 5}) {
      const SmallCheckpoint small(ranks, files);
      const Saved saved(small);
      CheckpointReader reader(saved.path);
      reader.verify();
      EXPECT_TRUE(holds(reader, small));
      for (int other = 1; other <= 6; ++other) {
        const ShardMap split = SmallCheckpoint(other, files).map();
        for (const std::vector<Slice>& slices : split.slices) {
          for (const Slice& slice : slices) EXPECT_TRUE(holds(reader, small, slice));
        }
      }
    }
  }
}

TEST(CheckpointReader, ReadsSlicesThatBeginAndEndInBlocks) {
  for (const int ranks : {1, 2}) {
    const SmallCheckpoint small(ranks, Files::single, true);
    const Saved saved(small);
    CheckpointReader reader(saved.path);
    EXPECT_TRUE(holds(reader, small));
    const int large = reader.find("head", "weight");
    ASSERT_GE(large, 0);
    std::mt19937_64 random(1);
    const std::int64_t elements = small.elements(large), block = block_bytes / 4;
    const auto below = [&](std::int64_t most) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most));
    };
    for (int i = 0; i < 20; ++i) {
      const std::int64_t first = below(elements), count = below(elements - first + 1);
      for (const State state : all_states) {
        EXPECT_TRUE(holds(reader, small, {state, large, first, count})) << first << " " << count;
      }
    }
    for (const std::int64_t first :
         {block - 1, 2 * block + 5, std::int64_t{5}, block + 5, block, elements - 1}) {
      EXPECT_TRUE(holds(reader, small, {State::parameters, large, first, 1})) << first;
    }
    for (const std::int64_t end : {block - 1, block, block + 1}) {
      EXPECT_TRUE(holds(reader, small, {State::parameters, large, 0, end})) << end;
    }
  }
}

TEST(CheckpointReader, IsASourceOfParameters) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    SmallCheckpoint small(3, Files::rank);
    small.set_dtypes({dtype, DType::bf16, DType::fp32});
    const Saved saved(small);
    CheckpointReader reader(saved.path);
    EXPECT_EQ(reader.find("block.0", "bias"), -1);
    const int qkv = reader.find("block.0", "attention.qkv.weight");
    std::vector<float> values(1001, 99.0f);
    reader.read("block.0", "attention.qkv.weight", {129, 33}, 700, 1000, values.data());
    for (std::int64_t i = 0; i < 1000; ++i) {
      EXPECT_EQ(values[static_cast<std::size_t>(i)], small.value(State::parameters, qkv, 700 + i));
    }
    EXPECT_EQ(values[1000], 99.0f);
    const auto read = [&](const std::string& name, const std::vector<std::int64_t>& shape,
                          std::int64_t first, std::int64_t count) {
      return error_of([&] { reader.read("block.0", name, shape, first, count, values.data()); });
    };
    EXPECT_HAS(read("bias", {1}, 0, 1), "has no parameter 'bias' of 'block.0'");
    EXPECT_HAS(read("norm.weight", {2}, 0, 1), "has the shape (1)");
    EXPECT_HAS(read("norm.weight", {1}, 0, 2), "elements 0 to 0 + 2");
    EXPECT_HAS(read("norm.weight", {1}, 2, 0), "it has 1");
    EXPECT_HAS(read("norm.weight", {1}, -1, 1), "it has 1");
    EXPECT_EQ(read("norm.weight", {1}, 1, 0), "no error");
  }
}

/// Matrices of 17 by 3, 129 by 33, and 5 by 7 that are saved in pieces of their columns.
SmallCheckpoint in_column_pieces(int ranks, Files files, std::int64_t pieces) {
  SmallCheckpoint small(ranks, files);
  small.set_column_pieces(0, 3);
  small.set_column_pieces(1, pieces);
  small.set_column_pieces(4, 7);
  return small;
}

/// Returns slices with arbitrary bounds, the whole array, and an empty slice.
std::vector<Slice> some_slices(State state, int parameter, std::int64_t elements) {
  std::mt19937_64 random(3);
  std::vector<Slice> slices = {{state, parameter, 0, elements},
                               {state, parameter, 0, 1},
                               {state, parameter, elements - 1, 1},
                               {state, parameter, 5, 0}};
  for (int i = 0; i < 30; ++i) {
    const auto a = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(elements));
    const auto b = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(elements));
    slices.push_back({state, parameter, std::min(a, b), std::max(a, b) - std::min(a, b)});
  }
  return slices;
}

TEST(CheckpointReader, ReadsPiecesOfColumnsRowByRow) {
  for (const Files files : all_files) {
    for (const int ranks : {1, 3}) {
      for (const std::int64_t pieces : {3, 11, 33}) {
        const SmallCheckpoint small = in_column_pieces(ranks, files, pieces);
        const Saved saved(small);
        CheckpointReader reader(saved.path);
        reader.verify();
        EXPECT_TRUE(holds(reader, small));
        for (const State state : all_states) {
          for (const Slice& slice : some_slices(state, 1, small.elements(1))) {
            EXPECT_TRUE(holds(reader, small, slice)) << slice.first << " " << slice.count;
          }
        }
        std::vector<float> values(1000);
        reader.read("block.0", "attention.qkv.weight", {129, 33}, 700, 1000, values.data());
        for (std::int64_t i = 0; i < 1000; ++i) {
          EXPECT_EQ(values[static_cast<std::size_t>(i)],
                    small.value(State::parameters, 1, 700 + i));
        }
        EXPECT_HAS(error_of([&] { reader.read(State::parameters, 1, 4256, 2, values.data()); }),
                   "it has 4257");
      }
    }
  }
}

/// Tensor ranks save columns in one number of pieces, and read them in another.
TEST(CheckpointReader, ReadsColumnsInOtherPiecesThanTheyWereSaved) {
  for (const std::int64_t saved_in : {1, 3, 11, 33}) {
    const SmallCheckpoint small = in_column_pieces(3, Files::rank, saved_in);
    const Saved saved(small);
    CheckpointReader reader(saved.path);
    for (const std::int64_t pieces : {1, 3, 11, 33}) {
      std::vector<std::string> expected, found;
      std::vector<Wanted> wanted;
      for (const State state : all_states) {
        for (const Slice& slice : some_slices(state, 1, small.elements(1))) {
          expected.push_back(small.numbers(slice, pieces));
          found.emplace_back(expected.back().size(), '?');
          wanted.push_back({slice, nullptr, pieces});
        }
      }
      for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i].values = found[i].data();
      reader.read(wanted);
      EXPECT_EQ(found, expected) << pieces << " pieces, saved in " << saved_in;
    }
  }
}

TEST(CheckpointReader, ReadsColumnsAsTheyAreSaved) {
  for (const std::int64_t pieces : {1, 3, 11, 33}) {
    const SmallCheckpoint small = in_column_pieces(3, Files::node, pieces);
    const Saved saved(small);
    CheckpointReader reader(saved.path);
    for (const State state : all_states) {
      for (const Slice& slice : some_slices(state, 1, small.elements(1))) {
        const std::string expected = small.numbers(slice, pieces);
        std::string found(expected.size(), '?');
        reader.read_as_saved(slice, found.data());
        EXPECT_EQ(found, expected) << slice.first << " " << slice.count;
      }
    }
  }
}

TEST(CheckpointReader, KnowsWhatThereIsNot) {
  const Saved saved(SmallCheckpoint(2, Files::rank));
  CheckpointReader reader(saved.path);
  const int frozen = reader.find("block.1", "frozen.weight");
  ASSERT_GE(frozen, 0);
  EXPECT_TRUE(reader.has(State::parameters, frozen));
  EXPECT_FALSE(reader.has(State::first_moment, frozen));
  EXPECT_FALSE(reader.has(State::parameters, 99));
  char number[4];
  EXPECT_HAS(error_of([&] { reader.read(State::first_moment, frozen, 0, 1, number); }),
             "has no first_moment of block.1/frozen.weight");
  EXPECT_HAS(error_of([&] { reader.read(State::parameters, 99, 0, 1, number); }), "parameter 99");
  EXPECT_HAS(error_of([&] { CheckpointReader(saved.file("none")); }), "none");
}

/// Checks the arrays of an HDF5 file, and counts the elements of each.
void check_file(const std::string& path, const SmallCheckpoint& small,
                std::vector<std::int64_t>& elements) {
  const hdf5::File file = hdf5::File::open(path, "checkpoint file");
  const int parameters = static_cast<int>(small.map().parameters.size());
  for (const State state : all_states) {
    const std::string group = std::string("/") + name(state);
    for (const std::string& dataset_name : file.datasets(group)) {
      const std::string whole = dataset_name.substr(0, dataset_name.find('['));
      std::int64_t first = 0;
      if (whole != dataset_name) first = std::stoll(dataset_name.substr(whole.size() + 1));
      int p = 0;
      while (p < parameters &&
             small.map().parameters[static_cast<std::size_t>(p)].path() != whole) {
        ++p;
      }
      ASSERT_LT(p, parameters) << dataset_name;
      const hdf5::Dataset dataset = file.dataset(group + "/" + dataset_name);
      std::int64_t count = 1;
      for (const std::int64_t extent : dataset.shape()) count *= extent;
      std::vector<float> values(static_cast<std::size_t>(count));
      dataset.read(hdf5::Type::float32, values.data());
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[static_cast<std::size_t>(i)], small.value(state, p, first + i))
            << dataset_name;
      }
      elements[static_cast<std::size_t>(p * states + static_cast<int>(state))] += count;
    }
  }
}

TEST(CheckpointFiles, AreHdf5WithTheValuesByName) {
  for (const Files files : all_files) {
    const SmallCheckpoint small(3, files);
    const Saved saved(small);
    std::vector<std::int64_t> elements(small.map().parameters.size() * states);
    for (const std::string& file : saved.names()) {
      if (file != "manifest.json") check_file(saved.file(file), small, elements);
    }
    for (int p = 0; p < static_cast<int>(small.map().parameters.size()); ++p) {
      for (const State state : all_states) {
        EXPECT_EQ(elements[static_cast<std::size_t>(p * states + static_cast<int>(state))],
                  small.has(state, p) ? small.elements(p) : 0);
      }
    }
  }
}

TEST(CheckpointReader, FindsFilesThatAreMissingOrOfAnotherLength) {
  for (const Files files : all_files) {
    const Saved saved(SmallCheckpoint(3, files));
    for (const std::string& name : saved.names()) {
      const std::string path = saved.file(name), away = saved.file("away");
      fs::rename(path, away);
      EXPECT_HAS(saved.verify_error(), name);
      fs::create_directory(path);
      EXPECT_HAS(saved.verify_error(), name);
      fs::remove(path);
      fs::rename(away, path);
      const auto size = fs::file_size(path);
      for (const std::uintmax_t other : {std::uintmax_t{0}, size / 2, size - 1, size + 1}) {
        fs::copy_file(path, away);
        fs::resize_file(path, other);
        EXPECT_HAS(saved.verify_error(), name);
        fs::rename(away, path);
      }
    }
    EXPECT_EQ(saved.verify_error(), "no error");
  }
}

TEST(CheckpointReader, TellsDamageFromWhatCanNotBeRead) {
  const SmallCheckpoint small(2, Files::rank);
  const Saved saved(small);
  const std::string path = saved.file("rank-00001.h5"), away = saved.scratch.file("away");
  fs::copy_file(path, away);
  std::int64_t number = 0;
  const auto repair = [&] {
    fs::remove_all(path);
    fs::copy_file(away, path);
  };
  const auto flip = [&](std::int64_t offset) {
    PlainFile file(path, PlainFile::Mode::write);
    char byte = 0;
    file.read(offset, 1, &byte);
    byte = static_cast<char>(byte ^ 1);
    file.write(offset, 1, &byte);
  };
  {
    CheckpointReader reader(saved.path);
    EXPECT_TRUE(reader.checks_what_it_reads());
    number = reader.manifest().files[1].pieces[0].offset;
  }
  const std::vector<std::function<void()>> damages = {
      [&] { fs::resize_file(path, 0); },
      [&] { fs::resize_file(path, fs::file_size(path) - 1); },
      [&] { fs::resize_file(path, fs::file_size(path) + 1); },
      [&] { flip(0); },
      [&] { flip(number); },
  };
  for (std::size_t i = 0; i < damages.size(); ++i) {
    damages[i]();
    EXPECT_THROW(CheckpointReader(saved.path).verify(), DamagedError) << i;
    repair();
    EXPECT_EQ(saved.verify_error(), "no error") << i;
  }

  const std::vector<std::function<void()>> hindrances = {
      [] {}, [&] { fs::create_directory(path); },
      [&] { fs::create_symlink("rank-00001.h5", path); },  // a link to itself
  };
  const auto is_plain = [](const auto& work) {
    try {
      work();
    } catch (const DamagedError&) {
      return false;
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  for (std::size_t i = 0; i < hindrances.size(); ++i) {
    fs::remove(path);
    hindrances[i]();
    EXPECT_TRUE(is_plain([&] { CheckpointReader(saved.path).verify(); })) << i;
    repair();
  }
  // The file is truncated after it was opened.
  CheckpointReader reader(saved.path);
  reader.verify_structure(1);
  fs::resize_file(path, 0);
  EXPECT_TRUE(is_plain([&] { reader.verify_structure(1); }));
}

TEST(CheckpointReader, FindsFilesThatWereSwapped) {
  const Saved saved(SmallCheckpoint(3, Files::rank));
  const auto swap = [&](const std::string& a, const std::string& b) {
    fs::rename(saved.file(a), saved.file("away"));
    fs::rename(saved.file(b), saved.file(a));
    fs::rename(saved.file("away"), saved.file(b));
  };
  swap("rank-00000.h5", "rank-00001.h5");
  EXPECT_HAS(saved.verify_error(), "rank-0000");
  swap("rank-00000.h5", "rank-00001.h5");
  EXPECT_EQ(saved.verify_error(), "no error");
}

TEST(CheckpointReader, FindsEveryFlippedBit) {
  std::mt19937_64 random(1);
  const auto below = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most));
  };
  for (const Files files : all_files) {
    const Saved saved(SmallCheckpoint(3, files));
    const std::vector<std::string> names = saved.names();
    for (int i = 0; i < 1000; ++i) {
      const std::string& name =
          names[static_cast<std::size_t>(below(static_cast<std::int64_t>(names.size())))];
      PlainFile file(saved.file(name), PlainFile::Mode::write);
      const std::int64_t offset = below(file.size());
      char byte = 0;
      file.read(offset, 1, &byte);
      const char flipped = static_cast<char>(byte ^ (1 << below(8)));
      file.write(offset, 1, &flipped);
      const std::string error = saved.verify_error();
      EXPECT_HAS(error, name) << name << " at " << offset << ": " << error;
      file.write(offset, 1, &byte);
    }
    EXPECT_EQ(saved.verify_error(), "no error");
  }
}

TEST(CheckpointReader, HandsOutNoDamagedNumber) {
  const SmallCheckpoint small(1, Files::rank, true);
  const Saved saved(small);
  CheckpointReader reader(saved.path);
  const int large = reader.find("head", "weight");
  EXPECT_TRUE(holds(reader, small, {State::parameters, large, 0, 10}));
  std::int64_t offset = -1;
  for (const PieceEntry& piece : reader.manifest().files[0].pieces) {
    if (piece.slice.state == State::parameters && piece.slice.parameter == large) {
      offset = piece.offset;
    }
  }
  ASSERT_GE(offset, 0);
  PlainFile file(saved.file("rank-00000.h5"), PlainFile::Mode::write);
  file.write(offset + block_bytes + 77, 1, "!");
  const auto read = [&](std::int64_t first, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    return error_of([&] { reader.read(State::parameters, large, first, count, values.data()); });
  };
  // Reads the whole block, a part of it that is undamaged, twice, and another block.
  EXPECT_HAS(read(0, block_bytes / 2), "rank-00000.h5' is damaged");
  EXPECT_HAS(read(block_bytes / 4 + 1000, 1), "rank-00000.h5' is damaged");
  EXPECT_HAS(read(block_bytes / 4 + 1000, 1), "of parameters of head/weight");
  EXPECT_EQ(read(block_bytes / 4 - 1, 1), "no error");
}

TEST(CheckpointReader, KeepsFewFilesOpen) {
  const SmallCheckpoint small(150, Files::rank);
  const Saved saved(small);
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = open_files();
  CheckpointReader reader(saved.path);
  reader.verify();
  EXPECT_TRUE(holds(reader, small));
  EXPECT_TRUE(holds(reader, small));
  EXPECT_LE(open_files() - before, 64);
}

}  // namespace
}  // namespace ostrakon::checkpoint
