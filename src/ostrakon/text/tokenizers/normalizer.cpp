// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/normalizer.hpp>

#include <ostrakon/text/tokenizers/normal_form.hpp>
#include <ostrakon/text/tokenizers/pattern.hpp>
#include <ostrakon/text/tokenizers/unicode.hpp>
#include <ostrakon/text/utf8.hpp>
#include <utility>
#include <vector>

namespace ostrakon::texts {
namespace {

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> steps)
      : steps_(std::move(steps)) {}
  void normalize(std::string& text) const override {
    for (const auto& step : steps_) {
      step->normalize(text);
      require_spans(text.size());
    }
  }
  bool moves_begin() const override {
    bool moves = false;
    for (const auto& step : steps_) moves = moves || step->moves_begin();
    return moves;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class NormalFormStep : public Normalizer {
 public:
  explicit NormalFormStep(NormalForm::Kind kind) : form_(kind) {}
  void normalize(std::string& text) const override { form_.normalize(text); }

 private:
  NormalForm form_;
};

class PrependText : public Normalizer {
 public:
  explicit PrependText(std::string begin) : begin_(std::move(begin)) {}
  void normalize(std::string& text) const override {
    if (!text.empty()) text.insert(0, begin_);
  }

 private:
  std::string begin_;
};

class ReplaceText : public Normalizer {
 public:
  ReplaceText(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void normalize(std::string& text) const override {
    std::vector<Span> matches;
    pattern_->find(text, 0, matches);
    if (matches.empty()) return;
    std::string changed;
    std::size_t at = 0;
    for (const Span& match : matches) {
      changed.append(text, at, match.begin - at).append(content_);
      at = match.end;
    }
    text = changed.append(text, at, text.npos);
  }
  bool moves_begin() const override { return true; }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class LowercaseText : public Normalizer {
 public:
  void normalize(std::string& text) const override {
    std::string changed;
    changed.reserve(text.size());
    for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at]))
      append_lower_case(code_point(text, at), changed);
    text.swap(changed);
  }
};

class StripText : public Normalizer {
 public:
  StripText(bool left, bool right) : left_(left), right_(right) {}
  void normalize(std::string& text) const override {
    std::size_t begin = 0, end = text.size();
    const std::string_view all = text;
    if (left_)
      while (begin < end && white_space().contains(code_point(all, begin)))
        begin += utf8_length(all[begin]);
    if (right_)
      while (end > begin) {
        const std::size_t at = last_character(all.substr(0, end));
        if (!white_space().contains(code_point(all, at))) break;
        end = at;
      }
    text = text.substr(begin, end - begin);
  }
  bool moves_begin() const override { return true; }

 private:
  bool left_, right_;
};

class StripAccentsOfText : public Normalizer {
 public:
  void normalize(std::string& text) const override {
    std::string changed;
    changed.reserve(text.size());
    for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at]))
      if (!combining_marks().contains(code_point(text, at)))
        changed.append(text, at, utf8_length(text[at]));
    text.swap(changed);
  }
  bool moves_begin() const override { return true; }
};

constexpr std::pair<const char*, NormalForm::Kind> normal_forms[] = {
    {"NFC", NormalForm::Kind::nfc},
    {"NFD", NormalForm::Kind::nfd},
    {"NFKC", NormalForm::Kind::nfkc},
    {"NFKD", NormalForm::Kind::nfkd}};

std::unique_ptr<Normalizer> read_unfinished(JsonFields& fields) {
  const std::string type = fields.type();
  for (const auto& [name, kind] : normal_forms)
    if (type == name) return std::make_unique<NormalFormStep>(kind);
  if (type == "Lowercase") return std::make_unique<LowercaseText>();
  if (type == "StripAccents") return std::make_unique<StripAccentsOfText>();
  if (type == "Prepend") return std::make_unique<PrependText>(fields.string("prepend"));
  if (type == "Strip")
    return std::make_unique<StripText>(fields.boolean("strip_left"), fields.boolean("strip_right"));
  if (type == "Replace")
    return std::make_unique<ReplaceText>(read_pattern(fields.object("pattern")),
                                         fields.string("content"));
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> steps;
    for (JsonFields& step : fields.objects("normalizers")) steps.push_back(read_normalizer(step));
    return std::make_unique<NormalizerSequence>(std::move(steps));
  }
  fields.refuse_type(
      "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Prepend, Strip, Replace or Sequence");
}

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(JsonFields& fields) {
  auto normalizer = read_unfinished(fields);
  fields.finish();
  return normalizer;
}

}  // namespace ostrakon::texts
