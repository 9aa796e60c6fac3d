// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <hdf5.h>

#include <ostrakon/base/hdf5.hpp>

#include "../support/scratch_folder.hpp"

namespace ostrakon::hdf5 {
namespace {

using testing::error_of;
using testing::ScratchFolder;

/// Adds an attribute to the root group as other programs do; `size`: of the text, or H5T_VARIABLE.
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
  EXPECT_NE(error_of([&] {
              file.root().text_attribute("number");
            }).find("attribute 'number' of the root group is not text"),
            std::string::npos);
}

TEST(File, CompletesBeforeItIsCommitted) {
  const ScratchFolder folder;
  const std::string path = folder.file("file.h5");
  File file = File::create(path, "file");
  file.complete();
  EXPECT_FALSE(std::filesystem::exists(path));
  file.commit();
  EXPECT_EQ(error_of([&] { File::open(path, "file"); }), "no error");
  EXPECT_NE(error_of([&] { file.commit(); }).find("is not being written"), std::string::npos);
}

}  // namespace
}  // namespace ostrakon::hdf5
