// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/huggingface_source.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_tokenizer.hpp>
#include <set>
#include <vector>

namespace ostrakon::checkpoint {
namespace {

using Shape = std::vector<std::int64_t>;

bool ends_with(const std::string& text, const std::string& ending) {
  return text.size() >= ending.size() &&
         text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

/// Whether a tensor is a constant table, which older files contain.
bool is_constant(const std::string& name) {
  for (const char* ending : {".attn.bias", ".attn.masked_bias", ".attention.bias",
                             ".attention.masked_bias", ".rotary_emb.inv_freq"})
    if (ends_with(name, ending)) return true;
  return false;
}

/// Collects differences between a file's tensors and a model's. The same difference in several
/// layers is listed once.
class Problems {
 public:
  void add(const std::string& problem) {
    const std::string kind = without_layer(problem);
    for (Kind& known : kinds_)
      if (known.name == kind) {
        ++known.more;
        return;
      }
    kinds_.push_back({kind, problem, 0});
  }

  void require_none(const std::string& path) const {
    if (kinds_.empty()) return;
    std::string all = text("'", path, "'");
    if (kinds_.size() == 1) throw Error(all + ": " + kinds_.front().shown());
    all += " is not of the model that the settings describe:";
    constexpr std::size_t most = 20;
    for (std::size_t i = 0; i < std::min(most, kinds_.size()); ++i)
      all += "\n  " + kinds_[i].shown();
    if (kinds_.size() > most) all += text("\n  and ", kinds_.size() - most, " more");
    throw Error(all);
  }

 private:
  struct Kind {
    std::string name, first;
    int more = 0;
    std::string shown() const {
      return more == 0 ? first : text(first, " (and ", more, " more like it)");
    }
  };

  /// Removes numbers between dots, which are those of layers and experts.
  static std::string without_layer(std::string name) {
    for (std::size_t dot = name.find('.'); dot != std::string::npos;
         dot = name.find('.', dot + 1)) {
      const std::size_t end = name.find_first_not_of("0123456789", dot + 1);
      if (end > dot + 1 && end < name.size() && name[end] == '.')
        name.erase(dot + 1, end - dot - 1);
    }
    return name;
  }

  std::vector<Kind> kinds_;
};

}  // namespace

HuggingFaceSource::HuggingFaceSource(const std::string& path,
                                     const model::DecoderSettings& settings,
                                     const std::optional<HuggingFaceConfig>& config)
    : settings_(settings),
      family_(config ? *config->family : family_of(settings)),
      names_(family_.names_for(settings)),
      config_text_(config ? config->text : ""),
      file_(path) {
  const std::string embedding = names_.token + ".weight", &prefix = names_.prefix;
  for (const std::string& one : {prefix, names_.text_prefix})
    if (file_.has(one + embedding)) prefix_ = one;
  require(file_.has(prefix_ + embedding), "'", path, "' is no ", family_.title,
          ", which the model's settings describe: it has no tensor ", embedding, " or ", prefix,
          embedding);
  require_complete();
  require_tied();
}

std::string HuggingFaceSource::unchecked() const {
  return config_text_.empty() ? unverified_settings(family_, settings_) : "";
}

std::string HuggingFaceSource::tokenizer() const {
  const auto named = file_.metadata().find("tokenizer");
  return named == file_.metadata().end() ? huggingface_tokenizer(file_.path()) : named->second;
}

std::int64_t HuggingFaceSource::positions() const {
  if (settings_.positions != model::Positions::learned) return 1;
  const std::string name = prefix_ + names_.position + ".weight";
  const SafetensorsTensor& table = file_.tensor(name);
  require(table.shape.size() == 2 && table.shape[0] > 0, "'", file_.path(), "': tensor ", name,
          " has the shape ", hdf5::shape_text(table.shape), "; expected positions, ",
          settings_.width);
  return table.shape[0];
}

bool HuggingFaceSource::has_shape(const HuggingFaceTensor& tensor) const {
  return file_.tensor(tensor.name).shape == tensor.shape;
}

std::string HuggingFaceSource::shape_problem(const HuggingFaceTensor& tensor) const {
  return text("tensor ", tensor.name, " has the shape ",
              hdf5::shape_text(file_.tensor(tensor.name).shape), "; expected ",
              hdf5::shape_text(tensor.shape));
}

void HuggingFaceSource::require_shape(const HuggingFaceTensor& tensor) const {
  if (!has_shape(tensor)) throw Error(text("'", file_.path(), "': ", shape_problem(tensor)));
}

void HuggingFaceSource::require_complete() {
  Problems problems;
  std::set<std::string> expected;
  for (const model::Parameter& parameter : parameters_of(settings_, positions()))
    for (const HuggingFaceTensor& tensor :
         tensors_of(parameter.owner, parameter.name, parameter.shape)) {
      if (!expected.insert(tensor.name).second) continue;
      if (!file_.has(tensor.name))
        problems.add(text("it has no tensor ", shown(tensor.name)));
      else if (!has_shape(tensor))
        problems.add(shape_problem(tensor));
    }
  for (const TensorCopy& copy : module_copies(names_, settings_, prefix_))
    expected.insert(copy.name);
  for (const auto& [name, tensor] : file_.tensors()) {
    const bool tied_head = settings_.tie_embeddings && name == names_.head + ".weight";
    if (expected.count(name) == 0 && !tied_head && !is_constant(name) && !is_passed_over(name))
      problems.add(text("tensor ", name, " ", hdf5::shape_text(tensor.shape),
                        " is no part of the model that the settings describe"));
  }
  problems.require_none(file_.path());
}

/// Whether a tensor is of what the family's files may have besides the model: a block behind all of
/// the model's, or a model of images.
bool HuggingFaceSource::is_passed_over(const std::string& name) const {
  const std::string start = prefix_ + names_.block;
  for (const std::string& other : {names_.further_tokens, names_.image_prefix})
    if (!other.empty() && name.rfind(other, 0) == 0) return true;
  if (names_.module_norm.empty() || name.rfind(start, 0) != 0) return false;
  const std::size_t end = name.find_first_not_of("0123456789", start.size());
  const bool is_number = end != std::string::npos && end > start.size() && end < start.size() + 9;
  return is_number && std::stoll(name.substr(start.size(), end - start.size())) >=
                          settings_.layers + settings_.multi_token_depth;
}

/// Checks matrices (vocabulary, width) that files store twice: if both differ, the model has not
/// one for both.
void HuggingFaceSource::require_tied() {
  if (settings_.tie_embeddings)
    require_copy({names_.head + ".weight", prefix_ + names_.token + ".weight"},
                 "but the model's tie_embeddings is true");
  for (const TensorCopy& copy : module_copies(names_, settings_, prefix_))
    require_copy(copy, "which a module of multi-token prediction takes");
}

void HuggingFaceSource::require_copy(const TensorCopy& copy, const char* why) {
  if (!file_.has(copy.name)) return;
  HuggingFaceTensor tensor;
  tensor.name = copy.name;
  tensor.shape = {settings_.vocabulary, settings_.width};
  require_shape(tensor);
  // Only some rows are compared, as each rank would take long to read all.
  constexpr std::int64_t samples = 16;
  std::vector<float> ours(static_cast<std::size_t>(settings_.width)), theirs = ours;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const std::int64_t row = sample * (settings_.vocabulary - 1) / (samples - 1);
    file_.read(copy.of, row * settings_.width, settings_.width, ours.data());
    file_.read(copy.name, row * settings_.width, settings_.width, theirs.data());
    require(ours == theirs, "'", file_.path(), "': row ", row, " of ", copy.name,
            " is not that of ", copy.of, ", ", why, "; expected one matrix for both");
  }
}

std::vector<HuggingFaceTensor> HuggingFaceSource::tensors_of(const std::string& owner,
                                                             const std::string& parameter,
                                                             const Shape& shape) const {
  return huggingface_tensors(names_, settings_, prefix_, owner, parameter, shape);
}

void HuggingFaceSource::read(const std::string& owner, const std::string& parameter,
                             const Shape& shape, std::int64_t first, std::int64_t count,
                             float* values) {
  const auto tensors = tensors_of(owner, parameter, shape);
  const std::int64_t columns = shape.size() == 2 ? shape[1] : 1;
  require(first >= 0 && count >= 0 && first <= shape[0] * columns - count, "elements ", first,
          " to ", first + count, " of parameter '", parameter, "' of '", owner,
          "' asked for; its shape is ", hdf5::shape_text(shape));
  for (const HuggingFaceTensor& tensor : tensors) {
    require_shape(tensor);
    const std::int64_t offset = tensor.first_row * columns;
    const std::int64_t begin = std::max(first, offset);
    const std::int64_t end = std::min(first + count, offset + tensor.rows * columns);
    if (begin >= end) continue;
    float* const to = values + (begin - first);
    if (tensor.is_plain())
      file_.read(tensor.name, tensor.slice * tensor.rows * columns + begin - offset, end - begin,
                 to);
    else
      read_reordered(tensor, columns, begin - offset, end - begin, to);
  }
}

/// Reads elements [first, first + count) of what is in another order in the file. Neighbours in
/// ours may be far apart there, and a parameter may be read in pieces, so a slice is read as a
/// whole and kept for the next call.
void HuggingFaceSource::read_reordered(const HuggingFaceTensor& tensor, std::int64_t columns,
                                       std::int64_t first, std::int64_t count, float* values) {
  if (kept_name_ != tensor.name || kept_slice_ != tensor.slice) {
    kept_name_.clear();
    const std::int64_t elements = tensor.rows * columns;
    std::vector<float> slice(static_cast<std::size_t>(elements));
    file_.read(tensor.name, tensor.slice * elements, elements, slice.data());
    kept_.resize(slice.size());
    to_our_order(tensor, columns, slice.data(), kept_.data());
    kept_name_ = tensor.name;
    kept_slice_ = tensor.slice;
  }
  std::copy_n(kept_.begin() + first, count, values);
}

}  // namespace ostrakon::checkpoint
