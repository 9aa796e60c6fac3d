// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>

#include "../support/scratch_folder.hpp"

namespace ostrakon::hdf5 {
namespace {

using testing::error_of;
using testing::ScratchFolder;

/// Adds an attribute to the root group as other programs do; `size`: size of the text, or
/// H5T_VARIABLE.
void add_text(const std::string& path, const char* name, std::size_t size, const void* value) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, size);
  H5Tset_cset(type, H5T_CSET_UTF8);
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  EXPECT_GE(H5Awrite(attribute, type, value), 0);
  H5Aclose(attribute);
  H5Sclose(space);
  H5Tclose(type);
  H5Fclose(file);
}

TEST(TextAttributes, MayBeOfAnyLength) {
  const ScratchFolder folder;
  const std::string path = folder.file("text.h5");
  File::create(path, "file").commit();
  const char* words = "long \xC3\xA9nough";
  const char* empty = "";
  const char* none = nullptr;
  add_text(path, "variable", H5T_VARIABLE, static_cast<const void*>(&words));
  add_text(path, "empty", H5T_VARIABLE, static_cast<const void*>(&empty));
  add_text(path, "none", H5T_VARIABLE, static_cast<const void*>(&none));
  add_text(path, "fixed", 8, "short\0\0");

  const File file = File::open(path, "file");
  Object root = file.root();
  EXPECT_EQ(root.text_attribute("variable"), words);
  EXPECT_EQ(root.text_attribute("empty"), "");
  EXPECT_EQ(root.text_attribute("none"), "");
  EXPECT_EQ(root.text_attribute("fixed"), "short");
}

TEST(TextAttributes, AreNoNumbers) {
  const ScratchFolder folder;
  File file = File::create(folder.file("number.h5"), "file");
  file.root().write_attribute("number", std::int64_t{5});
  EXPECT_HAS(error_of([&] { file.root().text_attribute("number"); }),
             "attribute 'number' of the root group is not text");
}

TEST(File, CompletesBeforeItIsCommitted) {
  const ScratchFolder folder;
  const std::string path = folder.file("file.h5");
  File file = File::create(path, "file");
  file.complete();
  EXPECT_FALSE(std::filesystem::exists(path));
  file.commit();
  EXPECT_EQ(error_of([&] { File::open(path, "file"); }), "no error");
  EXPECT_HAS(error_of([&] { file.commit(); }), "is not being written");
}

TEST(File, IsWrittenByOneAtATime) {
  const ScratchFolder folder;
  const std::string path = folder.file("file.h5");
  File file = File::create(path, "file");
  file.create_array("array", Type::int32, {1});
  const std::string expected = "'" + path + ".partial' is being written by another process";
  EXPECT_EQ(error_of([&] { File::create(path, "file"); }), expected);
  file.complete();  // the values are on disk, but the file has no name yet
  EXPECT_EQ(error_of([&] { File::create(path, "file"); }), expected);
  file.commit();
  EXPECT_TRUE(File::open(path, "file").has("array"));
  EXPECT_EQ(error_of([&] { File::create(path, "file"); }), "no error");
}

/// HDF5 crashes at the end of a process that has a file open; the file must be closed.
TEST(File, ThatCanNotBeWrittenIsAnErrorWithTheReasonAndIsClosed) {
  const ScratchFolder folder;
  const std::string path = folder.file("file.h5");
  const std::vector<float> values(5000, 1.0F);
  const auto write = [&](std::int64_t writes, bool completes) {
    std::filesystem::create_symlink("/dev/full", path + ".partial");
    File file = File::create(path, "file");
    const auto count = static_cast<std::int64_t>(values.size());
    for (std::int64_t i = 0; i < writes; ++i)
      file.create_array(text("/group/array-", i), Type::float32, {count})
          .write(Type::float32, values.data());
    if (completes) file.complete();
  };
  for (const std::int64_t writes : {1, 200}) {
    const std::string error = error_of([&] { write(writes, true); });
    EXPECT_HAS(error, path);
    EXPECT_HAS(error, "No space left on device");
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(path + ".partial")));
    error_of([&] { write(writes, false); });
    EXPECT_EQ(H5Fget_obj_count(static_cast<hid_t>(H5F_OBJ_ALL), H5F_OBJ_FILE), 0);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(File, KeepsNoIdOfWhatItCanNotWrite) {
  const ScratchFolder folder;
  const std::string path = folder.file("file.h5");
  std::filesystem::create_symlink("/dev/full", path + ".partial");
  File file = File::create(path, "file");
  const std::vector<float> values(5000, 1.0F);
  error_of([&] {
    file.create_array("first", Type::float32, {5000}).write(Type::float32, values.data());
  });
  EXPECT_NE(error_of([&] { file.create_array("second", Type::float32, {1}); }), "no error");
  EXPECT_NE(error_of([&] { file.create_series("third", Type::float32, 1); }), "no error");
  EXPECT_NE(error_of([&] { file.root().write_attribute("name", "value"); }), "no error");
  const unsigned objects = H5F_OBJ_DATASET | H5F_OBJ_ATTR | H5F_OBJ_GROUP;
  EXPECT_EQ(H5Fget_obj_count(static_cast<hid_t>(H5F_OBJ_ALL), objects), 0);
}

/// If the values were kept, twice the memory of the largest array would be in use.
TEST(File, KeepsNoValuesThatItCanNotWrite) {
  const ScratchFolder folder;
  const std::string path = folder.file("file.h5");
  std::filesystem::create_symlink("/dev/full", path + ".partial");
  File file = File::create(path, "file");
  constexpr std::int64_t count = 1 << 20;
  std::vector<float> values(count, 1.0F);
  Dataset array = file.create_array("array", Type::float32, {count});
  EXPECT_NE(error_of([&] { array.write(Type::float32, values.data()); }), "no error");
  array.read(Type::float32, values.data());
  EXPECT_EQ(std::count(values.begin(), values.end(), 1.0F), 0);
  EXPECT_HAS(error_of([&] { file.complete(); }), "No space left on device");
}

TEST(File, IsReadBackWhileItIsWritten) {
  const ScratchFolder folder;
  const std::string path = folder.file("file.h5");
  const std::vector<float> values = {1.0F, 2.0F, 3.0F};
  std::vector<float> found(3);
  File file = File::create(path, "file");
  file.create_array("/array", Type::float32, {3}).write(Type::float32, values.data());
  file.dataset("/array").read(Type::float32, found.data());
  EXPECT_EQ(found, values);
  file.commit();
  File::open(path, "file").dataset("/array").read(Type::float32, found.data());
  EXPECT_EQ(found, values);
}

std::int64_t size_of(Type type) { return type == Type::float32 ? 4 : 2; }

std::int64_t bytes_of(const ArrayShape& array) {
  std::int64_t bytes = size_of(array.type);
  for (const std::int64_t extent : array.shape) bytes *= extent;
  return bytes;
}

/// Some small and some large arrays, in many groups, one of which has many arrays.
std::vector<ArrayShape> many_arrays() {
  std::vector<ArrayShape> arrays;
  for (int i = 0; i < 60; ++i) {
    const std::string number = std::to_string(i);
    arrays.push_back({"/a/block." + number + "/weight", Type::float32, {i + 1, 400}, {}});
    arrays.push_back({"/a/bias" + number, Type::bfloat16, {i + 1}, {{"place", "at " + number}}});
  }
  arrays.push_back({"/last", Type::bfloat16, {3, 4, 5}, {{"place", "end"}, {"empty", ""}}});
  return arrays;
}

/// Returns value `i` of array `array`, which is exact in both types.
float value_of(std::size_t array, std::int64_t i) {
  return static_cast<float>((static_cast<std::int64_t>(array) * 7 + i) % 256 - 100) / 4.0f;
}

std::string values_of(const ArrayShape& array, std::size_t number) {
  std::string bytes;
  for (std::int64_t i = 0; i < bytes_of(array) / size_of(array.type); ++i) {
    const float value = value_of(number, i);
    std::uint16_t upper = 0;  // the value in bfloat16
    std::memcpy(&upper, reinterpret_cast<const char*>(&value) + 2, sizeof upper);
    if (array.type == Type::float32)
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    else
      bytes.append(reinterpret_cast<const char*>(&upper), sizeof upper);
  }
  return bytes;
}

/// Writes a file as a save does, without HDF5.
void write_by_hand(const std::string& path, const FileTemplate& made,
                   const std::vector<ArrayShape>& arrays) {
  PlainFile file(path, PlainFile::Mode::create);
  for (const FileTemplate::Extent& extent : made.structure)
    file.write(extent.offset, static_cast<std::int64_t>(extent.bytes.size()), extent.bytes.data());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const std::string values = values_of(arrays[i], i);
    file.write(made.offsets[i], static_cast<std::int64_t>(values.size()), values.data());
  }
  EXPECT_EQ(file.size(), made.bytes);
}

TEST(FileTemplate, IsAFileOnceItsBytesAreWritten) {
  const ScratchFolder folder;
  const std::string path = folder.file("file.h5");
  const std::vector<ArrayShape> arrays = many_arrays();
  const FileTemplate made = make_template({{"format", "test"}, {"words", "some more"}}, arrays);
  write_by_hand(path, made, arrays);

  const File file = File::open(path, "file");
  EXPECT_EQ(file.root().text_attribute("format"), "test");
  EXPECT_EQ(file.root().text_attribute("words"), "some more");
  EXPECT_EQ(file.datasets("/").size(), arrays.size());
  EXPECT_EQ(file.datasets("/a/block.7"), std::vector<std::string>{"weight"});
  for (std::size_t a = 0; a < arrays.size(); ++a) {
    const Dataset dataset = file.dataset(arrays[a].name);
    EXPECT_EQ(dataset.type(), arrays[a].type);
    EXPECT_EQ(dataset.shape(), arrays[a].shape);
    for (const auto& [name, value] : arrays[a].attributes)
      EXPECT_EQ(dataset.text_attribute(name), value);
    const std::int64_t count = bytes_of(arrays[a]) / size_of(arrays[a].type);
    std::vector<float> values(static_cast<std::size_t>(count));
    dataset.read(Type::float32, values.data());
    for (std::int64_t i = 0; i < count; ++i)
      ASSERT_EQ(values[static_cast<std::size_t>(i)], value_of(a, i)) << arrays[a].name << " " << i;
  }
}

TEST(FileTemplate, CoversEveryByteOnceAndAlignsLargeArrays) {
  const std::vector<ArrayShape> arrays = many_arrays();
  const FileTemplate made = make_template({}, arrays);
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    parts.emplace_back(made.offsets[i], bytes_of(arrays[i]));
    if (bytes_of(arrays[i]) >= 65536) {
      EXPECT_EQ(made.offsets[i] % 4096, 0);
    }
  }
  for (std::size_t i = 0; i < made.structure.size(); ++i) {
    const FileTemplate::Extent& extent = made.structure[i];
    if (i > 0) {
      EXPECT_GT(extent.offset, made.structure[i - 1].offset);
    }
    parts.emplace_back(extent.offset, static_cast<std::int64_t>(extent.bytes.size()));
  }
  std::sort(parts.begin(), parts.end());
  std::int64_t at = 0;
  for (const auto& [begin, bytes] : parts) {
    ASSERT_EQ(begin, at);
    EXPECT_GT(bytes, 0);
    at += bytes;
  }
  EXPECT_EQ(at, made.bytes);
}

/// Tests one array at a time, of every kind of size: HDF5 must find the file's end where it expects
/// it.
TEST(FileTemplate, EndsWhereItsLastArrayEnds) {
  const ScratchFolder folder;
  const std::string path = folder.file("file.h5");
  for (const std::int64_t count : {1, 2, 3, 1000, 1023, 1024, 32767, 32768, 32769, 1000001}) {
    const std::vector<ArrayShape> arrays = {{"/values", Type::bfloat16, {count}, {}}};
    const FileTemplate made = make_template({}, arrays);
    EXPECT_GE(made.bytes, made.offsets[0] + 2 * count);
    write_by_hand(path, made, arrays);
    std::vector<float> values(static_cast<std::size_t>(count));
    File::open(path, "file").dataset("/values").read(Type::float32, values.data());
    EXPECT_EQ(values.back(), value_of(0, count - 1)) << count;
  }
}

TEST(FileTemplate, IsTheSameEachTime) {
  const std::vector<ArrayShape> arrays = many_arrays();
  const FileTemplate first = make_template({{"format", "test"}}, arrays);
  sleep(1);  // HDF5 stores times in seconds
  const FileTemplate second = make_template({{"format", "test"}}, arrays);
  EXPECT_EQ(first.bytes, second.bytes);
  EXPECT_EQ(first.offsets, second.offsets);
  ASSERT_EQ(first.structure.size(), second.structure.size());
  for (std::size_t i = 0; i < first.structure.size(); ++i) {
    EXPECT_EQ(first.structure[i].offset, second.structure[i].offset);
    EXPECT_EQ(first.structure[i].bytes, second.structure[i].bytes) << i;
  }
}

TEST(FileTemplate, OfTerabytesIsSmall) {
  std::vector<ArrayShape> arrays;
  for (int i = 0; i < 300; ++i)
    arrays.push_back({"/layer" + std::to_string(i), Type::float32, {50000, 50000}, {}});
  const FileTemplate made = make_template({}, arrays);
  EXPECT_GT(made.bytes, std::int64_t{3'000'000'000'000});
  std::size_t bytes = 0;
  for (const FileTemplate::Extent& extent : made.structure) bytes += extent.bytes.size();
  EXPECT_LT(bytes, std::size_t{2} << 20);
}

TEST(FileTemplate, RefusesWhatHdf5CanNotHold) {
  const auto refusal = [](const ArrayShape& array) {
    return error_of([&] { make_template({}, {array}); });
  };
  EXPECT_EQ(refusal({"/none", Type::float32, {3, 0}, {}}),
            "layout of an HDF5 file: /none has the shape (3, 0); expected positive extents and "
            "less than 2^63 bytes");
  const std::int64_t large = std::int64_t{1} << 31;
  EXPECT_HAS(refusal({"/large", Type::bfloat16, {large, large}, {}}), "less than 2^63 bytes");
  const ArrayShape half{"/half", Type::float32, {large, large / 4}, {}};
  EXPECT_EQ(refusal(half), "no error");
  EXPECT_EQ(error_of([&] {
              make_template({}, {half, {"/more", Type::float32, half.shape, {}}});
            }),
            "layout of an HDF5 file: with /more its arrays have more than 2^63 - 2^40 bytes");
  EXPECT_HAS(
      error_of([] {
        make_template({}, {{"/twice", Type::float32, {1}, {}}, {"/twice", Type::float32, {1}, {}}});
      }),
      "can't create /twice");
}

TEST(Bfloat16, IsConvertedByHdf5) {
  const ScratchFolder folder;
  const std::string path = folder.file("file.h5");
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  {
    File file = File::create(path, "file");
    file.create_array("all", Type::bfloat16, {65536}).write(Type::bfloat16, all.data());
    file.commit();
  }
  const File file = File::open(path, "file");
  const Dataset dataset = file.dataset("all");
  EXPECT_STREQ(name(dataset.type()), "bfloat16");
  std::vector<float> values(all.size());
  dataset.read(Type::float32, values.data());
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const std::uint32_t bits = i << 16;
    float expected = 0.0f;
    std::memcpy(&expected, &bits, sizeof expected);
    EXPECT_EQ(std::isnan(values[i]), std::isnan(expected)) << i;
    if (!std::isnan(expected)) {
      EXPECT_EQ(std::memcmp(&values[i], &expected, sizeof expected), 0) << i << ": " << values[i];
    }
  }
  std::vector<std::uint16_t> part(100);
  dataset.read_elements(Type::bfloat16, 500, 100, part.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 500));
}

/// Writes a series through a filter that this process then unregisters. HDF5 loads other filters
/// from libraries, which may be missing.
void write_filtered(const std::string& path) {
  const auto pass_on = [](unsigned, std::size_t, const unsigned*, std::size_t bytes, std::size_t*,
                          void**) -> std::size_t { return bytes; };
  constexpr H5Z_filter_t filter = 300;  // in the range for tests
  const H5Z_class2_t passing = {H5Z_CLASS_T_VERS, filter,  1,       1,
                                "passing",        nullptr, nullptr, pass_on};
  ASSERT_GE(H5Zregister(&passing), 0);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t count = 4;
  H5Pset_chunk(creation, 1, &count);
  H5Pset_filter(creation, filter, H5Z_FLAG_MANDATORY, 0, nullptr);
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t dataset =
      H5Dcreate2(file, "/filtered", H5T_STD_I32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  const std::int32_t values[count] = {1, 2, 3, 4};
  EXPECT_GE(H5Dwrite(dataset, H5T_STD_I32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Pclose(creation);
  H5Fclose(file);
  ASSERT_GE(H5Zunregister(filter), 0);
}

TEST(Filters, ThatAreMissingAreNamedAndAreNoDamage) {
  const ScratchFolder folder;
  const std::string path = folder.file("filtered.h5");
  {
    File made = File::create(path, "file");
    const std::int32_t value = 1;
    made.create_series("/plain", Type::int32, 4).append(Type::int32, &value, 1);
    made.commit();
  }
  write_filtered(path);
  const File file = File::open(path, "file");
  EXPECT_EQ(file.dataset("/plain").missing_filter(), "");
  const Dataset dataset = file.dataset("/filtered");
  EXPECT_EQ(dataset.missing_filter(), "passing (300)");
  std::int32_t values[4];
  const std::string expected = "'" + path +
                               "': /filtered is stored with the HDF5 filter passing (300), which "
                               "is not available in this HDF5; expected none, or one that is, such "
                               "as gzip";
  EXPECT_EQ(error_of([&] { dataset.read(Type::int32, values); }), expected);
  EXPECT_EQ(error_of([&] { dataset.read(Type::int32, 1, 2, values); }), expected);
  EXPECT_EQ(error_of([&] { dataset.read_elements(Type::int32, 1, 2, values); }), expected);
}

TEST(Checksum, ValueIsWhatHexShows) {
  Checksum sum;
  EXPECT_EQ(sum.value(), 0x2d06800538d394c2u);  // the checksum of no bytes
  EXPECT_EQ(sum.hex(), "2d06800538d394c2");
  sum.add("a", 1);
  const std::uint64_t one = sum.value();
  EXPECT_EQ(sum.value(), one);
  sum.add("b", 1);
  EXPECT_NE(sum.value(), one);
}

}  // namespace
}  // namespace ostrakon::hdf5
