// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/manifest.hpp>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/checkpoint/input_file.hpp>
#include <ostrakon/checkpoint/manifest_text.hpp>

namespace ostrakon::checkpoint {
namespace {

using Json = nlohmann::json;

std::string quoted(const std::string& words) {
  try {
    return Json(words).dump();
  } catch (const Json::exception&) {
    throw Error(text("can't write a manifest: ",
                     Json(words.substr(0, 100)).dump(-1, ' ', true, Json::error_handler_t::replace),
                     " is not UTF-8"));
  }
}

std::string quoted(DType dtype) { return quoted(std::string(name(dtype))); }
std::string quoted_hex(std::uint64_t value) { return '"' + format_hex(value) + '"'; }

/// Formats a number with the fewest digits that read back to it.
std::string exact(double value) {
  require(std::isfinite(value), "can't write a manifest: it has the number ", value,
          "; expected a finite one");
  return Json(value).dump();
}

/// Writes the items of a list on separate lines, with commas between.
class Lines {
 public:
  Lines(std::string& out, std::string indent) : out_(out), indent_(std::move(indent)) {}
  std::string& next() {
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
    return out_ += indent_;
  }

 private:
  std::string& out_;
  std::string indent_;
  bool first_ = true;
};

void add_deck(std::string& out, const std::string& deck) {
  Lines lines(out, "    ");
  for (std::size_t begin = 0; begin <= deck.size();) {
    const std::size_t end = std::min(deck.find('\n', begin), deck.size());
    lines.next() += quoted(deck.substr(begin, end - begin));
    begin = end + 1;
  }
}

void add_parameters(std::string& out, const Manifest& manifest) {
  Lines lines(out, "    ");
  std::int64_t offset = 0;
  for (const ParameterEntry& entry : manifest.parameters) {
    lines.next() +=
        "{\"owner\": " + quoted(entry.owner) + ", \"name\": " + quoted(entry.name) +
        ", \"shape\": " + Json(entry.shape).dump() +
        ", \"type\": " + quoted(manifest.dtypes[static_cast<std::size_t>(State::parameters)]) +
        ", \"unit\": " + quoted(entry.unit) + ", \"frozen\": " + (entry.frozen ? "true" : "false") +
        (entry.column_pieces > 1 ? ", \"column_pieces\": " + std::to_string(entry.column_pieces)
                                 : "") +
        ", \"offset\": " + std::to_string(offset) + "}";
    offset += entry.elements();
  }
}

void add_piece(std::string& out, const PieceEntry& piece) {
  out += "{\"state\": \"";
  out += name(piece.slice.state);
  out += "\", \"parameter\": " + std::to_string(piece.slice.parameter);
  out += ", \"first\": " + std::to_string(piece.slice.first);
  out += ", \"count\": " + std::to_string(piece.slice.count);
  out += ", \"rank\": " + std::to_string(piece.rank);
  out += ", \"offset\": " + std::to_string(piece.offset);
  out += ", \"checksums\": [";
  for (std::size_t i = 0; i < piece.checksums.size(); ++i)
    out += (i == 0 ? "" : ", ") + quoted_hex(piece.checksums[i]);
  out += "]}";
}

void add_file(std::string& out, const FileEntry& file) {
  out += "{\"name\": " + quoted(file.name) + ", \"bytes\": " + std::to_string(file.bytes) +
         ", \"structure\": " + quoted_hex(file.structure) + ", \"pieces\": [";
  Lines lines(out, "      ");
  for (const PieceEntry& piece : file.pieces) add_piece(lines.next(), piece);
  out += "]}";
}

std::string facts_text(const Facts& facts) {
  std::string out;
  for (const Fact& fact : facts)
    out += (out.empty() ? "{\"name\": " : ", {\"name\": ") + quoted(fact.name) +
           ", \"value\": " + quoted(fact.value) + "}";
  return "[" + out + "]";
}

std::string outliers_text(const std::optional<Progress::Outliers>& outliers) {
  if (!outliers) return "null";
  return "{\"steps\": " + std::to_string(outliers->steps) +
         ", \"loss_mean\": " + exact(outliers->loss_mean) +
         ", \"loss_variance\": " + exact(outliers->loss_variance) +
         ", \"gradient_norm_mean\": " + exact(outliers->gradient_norm_mean) +
         ", \"gradient_norm_variance\": " + exact(outliers->gradient_norm_variance) + "}";
}

bool has_averages(const Manifest& manifest) {
  for (const FileEntry& file : manifest.files)
    for (const PieceEntry& piece : file.pieces)
      if (piece.slice.state == State::average) return true;
  return false;
}

/// Averages are left out where there are none, as in manifests before there could be any.
std::string dtypes_text(const Manifest& manifest) {
  std::string out;
  for (int i = 0; i < states; ++i)
    if (static_cast<State>(i) != State::average || has_averages(manifest))
      out += text(i == 0 ? "{" : ", ", "\"", name(static_cast<State>(i)),
                  "\": ", quoted(manifest.dtypes[static_cast<std::size_t>(i)]));
  return out + "}";
}

}  // namespace

std::int64_t Manifest::bytes() const {
  std::int64_t sum = 0;
  for (const FileEntry& file : files) sum += file.bytes;
  return sum;
}

std::string write_manifest(const Manifest& manifest, std::int64_t most) {
  const Progress& progress = manifest.progress;
  std::string out = "{";
  Lines lines(out, "  ");
  const auto add = [&](const char* key, const std::string& value) {
    lines.next() += text("\"", key, "\": ", value);
  };
  add("format", quoted(manifest_format));
  add("version", std::to_string(manifest_version));
  add("checksum", quoted_hex(0));
  add("program", quoted(manifest.program));
  add("sequence", std::to_string(manifest.sequence));
  add("step", std::to_string(progress.step));
  add("updates", std::to_string(progress.updates));
  add("samples", std::to_string(progress.samples));
  add("seed", std::to_string(progress.seed));
  if (progress.audited_step > 0) add("audited_step", std::to_string(progress.audited_step));
  add("skipped_in_a_row", std::to_string(progress.skipped_in_a_row));
  add("loss_scale", exact(progress.loss_scale));
  add("good_steps", std::to_string(progress.good_steps));
  add("outliers", outliers_text(progress.outliers));
  add("plan", quoted_hex(manifest.plan));
  add("ranks", std::to_string(manifest.ranks));
  add("optimizer", quoted(manifest.optimizer));
  add("tokenizer", quoted(manifest.tokenizer));
  if (!manifest.data.empty()) add("data", facts_text(manifest.data));
  if (!manifest.huggingface_config.empty())
    add("huggingface_config", quoted(manifest.huggingface_config));
  add("numbers", dtypes_text(manifest));
  add("deck", "[");
  add_deck(out, manifest.deck);
  out += "\n  ]";
  add("parameters", "[");
  add_parameters(out, manifest);
  out += "\n  ]";
  add("files", "[");
  Lines files(out, "    ");
  for (const FileEntry& file : manifest.files) add_file(files.next(), file);
  out += "\n  ]\n}\n";
  const auto bytes = static_cast<std::int64_t>(out.size());
  require(bytes <= most, "can't write a manifest: it has ", bytes, " bytes; expected at most ",
          most);
  out.replace(checksum_place(out), checksum_digits, format_hex(checksum_of_text(out)));
  return out;
}

std::string write_file_entry(const FileEntry& file) {
  std::string out;
  add_file(out, file);
  return out;
}

std::size_t checksum_place(const std::string& manifest) {
  constexpr std::size_t furthest = 1000;
  const std::string before = "\n  \"checksum\": \"";
  const std::size_t found = manifest.substr(0, furthest).find(before);
  if (found == std::string::npos) return std::string::npos;
  const std::size_t place = found + before.size();
  return manifest.size() - place < checksum_digits ? std::string::npos : place;
}

std::uint64_t checksum_of_text(const std::string& manifest) {
  const std::size_t place = checksum_place(manifest), after = place + checksum_digits;
  const std::string zeros(checksum_digits, '0');
  hdf5::Checksum sum;
  sum.add(manifest.data(), static_cast<std::int64_t>(place));
  sum.add(zeros.data(), static_cast<std::int64_t>(zeros.size()));
  sum.add(manifest.data() + after, static_cast<std::int64_t>(manifest.size() - after));
  return sum.value();
}

std::string manifest_path(const std::string& folder) {
  return (std::filesystem::path(folder) / "manifest.json").string();
}

std::string load_manifest(const std::string& folder) {
  using std::filesystem::file_type;
  const file_type type = type_of(folder);
  require(type != file_type::not_found, "checkpoint '", folder,
          "' does not exist, or is not visible on this host");
  require(type == file_type::directory, "checkpoint '", folder,
          "' is not a folder; expected one with a manifest.json in it");
  const std::string path = manifest_path(folder);
  require(type_of(path) != file_type::not_found, "folder '", folder,
          "' has no manifest.json: it is no checkpoint, or this host does not see the file (yet)");
  const PlainFile file(path, PlainFile::Mode::read);
  const std::int64_t bytes = file.size();
  require_length(file, bytes);
  require_undamaged(bytes <= most_manifest_bytes, "manifest '", path, "' has ", bytes,
                    " bytes; expected at most ", most_manifest_bytes);
  std::string manifest(static_cast<std::size_t>(bytes), '\0');
  file.read(0, bytes, manifest.data());
  return manifest;
}

}  // namespace ostrakon::checkpoint
