// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

constexpr const char* kind = "weights file";
constexpr const char* format = "ostrakon-weights";
constexpr std::int64_t format_version = 1;

std::string place(const std::string& unit, const std::string& parameter) {
  return "/parameters/" + unit + "/" + parameter;
}

std::string checksum(const std::vector<std::int64_t>& shape, const float* values) {
  std::int64_t bytes = sizeof(float);
  for (const std::int64_t extent : shape) bytes *= extent;
  hdf5::Checksum sum;
  sum.add(values, bytes);
  return sum.hex();
}

hdf5::File open_weights_file(const std::string& path) {
  hdf5::File file = hdf5::File::open(path, kind);
  file.check_format(format, format_version);
  return file;
}

}  // namespace

WeightsWriter::WeightsWriter(const std::string& path, const std::string& deck, std::int64_t step,
                             const std::string& tokenizer)
    : file_(hdf5::File::create(path, kind)) {
  file_.write_format(format, format_version);
  hdf5::Object root = file_.root();
  root.write_attribute("deck", deck);
  root.write_attribute("step", step);
  root.write_attribute("tokenizer", tokenizer);
}

void WeightsWriter::write(const std::string& unit, const std::string& parameter,
                          const std::vector<std::int64_t>& shape, const float* values) {
  for (const std::int64_t extent : shape) {
    require(extent > 0, "parameter '", parameter, "' of unit '", unit, "' has the shape ",
            hdf5::shape_text(shape), "; expected positive extents");
  }
  hdf5::Dataset dataset = file_.create_array(place(unit, parameter), hdf5::Type::float32, shape);
  dataset.write(hdf5::Type::float32, values);
  dataset.write_attribute("checksum", checksum(shape, values));
}

WeightsReader::WeightsReader(const std::string& path) : file_(open_weights_file(path)) {
  const hdf5::Object root = file_.root();
  deck_ = root.text_attribute("deck");
  step_ = root.integer_attribute("step");
  tokenizer_ = root.text_attribute("tokenizer");
}

void WeightsReader::read(const std::string& unit, const std::string& parameter,
                         const std::vector<std::int64_t>& shape, float* values) const {
  const std::string name = place(unit, parameter);
  require(file_.has(name), kind, " '", file_.path(), "' has no parameter '", parameter,
          "' of unit '", unit, "'");
  const hdf5::Dataset dataset = file_.dataset(name);
  require(dataset.shape() == shape, "parameter '", parameter, "' of unit '", unit,
          "' has the shape ", hdf5::shape_text(dataset.shape()), " in ", kind, " '", file_.path(),
          "', expected ", hdf5::shape_text(shape));
  require(dataset.type() == hdf5::Type::float32, "parameter '", parameter, "' of unit '", unit,
          "' is ", hdf5::type_name(dataset.type()), " in ", kind, " '", file_.path(),
          "', expected float32");
  dataset.read(hdf5::Type::float32, values);
  const std::string expected = dataset.text_attribute("checksum");
  const std::string found = checksum(shape, values);
  require(found == expected, "parameter '", parameter, "' of unit '", unit, "' in ", kind, " '",
          file_.path(), "' is damaged: its checksum is ", found, ", expected ", expected);
}

}  // namespace ostrakon::checkpoint
