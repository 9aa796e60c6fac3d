// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/deck.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/input.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/config/keys.hpp>
#include <ostrakon/config/value.hpp>
#include <set>
#include <sstream>
#include <utility>

namespace ostrakon::config {
namespace {

bool ends_in_xml(const std::string& name) {
  std::string extension = std::filesystem::path(name).extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return extension == ".xml";
}

/// The settings of an empty deck; widths of 0 are computed from other settings later.
Settings starting_settings() {
  Settings settings;
  settings.model.kv_heads = 0;
  settings.model.ffn_width = 0;
  return settings;
}

/// Sets one key, or throws Error. `place` is the deck's name and the key, or --set and the key.
void set_key(Settings& settings, const Key& key, const Value& value, const std::string& place,
             const char* equals) {
  try {
    if (key.set(settings, value)) return;
  } catch (const Error& error) {
    throw Error(text(place, ": ", error.what()));
  }
  std::string expected = key.expected;
  if (key.is_unbounded_integer && value.kind == Value::Kind::number &&
      value.number > static_cast<double>(largest_integer)) {
    expected += text(" and <= ", largest_integer);
  }
  // The number is written with digits, but too large or too small for a double.
  if (value.kind == Value::Kind::number && !std::isfinite(value.number) &&
      value.text.find_first_of("nN") == std::string::npos)
    expected += text("; ", value.shown(), " is beyond the range of a double");
  if (value.is_scalar()) throw Error(text(place, equals, value.shown(), ": expected ", expected));
  throw Error(text(place, ": expected ", expected, ", found ", value.shown(),
                   value.kind == Value::Kind::section
                       ? "; decks have three levels: ostrakon, section, key"
                       : ""));
}

void apply_section(Settings& settings, const DeckSection& found, const std::string& name) {
  const Section* section = find_section(found.name);
  const bool is_section = found.value.kind == Value::Kind::section;
  const std::string shown = found.value.is_scalar() ? " = " + found.value.shown() : "";
  require(section != nullptr, name, ": ", found.name, shown, ": no such section",
          section == nullptr ? suggest_section(found.name) : "");
  require(is_section, name, ": ", found.name, shown, ": expected a section, with keys below it",
          shown.empty() ? ", found " + found.value.shown() : "");
  for (const DeckEntry& entry : found.entries) {
    const std::string place = name + ": " + found.name + "." + entry.name;
    const Key* key = find_key(*section, entry.name);
    if (key == nullptr) {
      throw Error(text(place, entry.value.is_scalar() ? " = " + entry.value.shown() : "",
                       ": no such key", suggest_key(found.name, entry.name)));
    }
    set_key(settings, *key, entry.value, place, " = ");
    settings.given.insert(found.name + "." + entry.name);
    if (key->change_paths)
      settings.path_origins[found.name + "." + entry.name] =
          text(place, " = ", entry.value.shown());
  }
}

void apply_override(Settings& settings, const Override& setting) {
  const std::string place = "--set " + setting.first;
  const std::size_t dot = setting.first.find('.');
  require(dot != std::string::npos, place, "=", setting.second, ": expected section.key=value",
          suggest_section(setting.first));
  const std::string section_name = setting.first.substr(0, dot);
  const std::string key_name = setting.first.substr(dot + 1);
  const Section* section = find_section(section_name);
  const Key* key = section == nullptr ? nullptr : find_key(*section, key_name);
  if (key == nullptr) {
    throw Error(
        text(place, "=", setting.second, ": no such key", suggest_key(section_name, key_name)));
  }
  const Value value = key->is_text ? Value::of(setting.second) : parse_scalar(setting.second);
  set_key(settings, *key, value, place, "=");
  settings.given.insert(setting.first);
  if (key->change_paths) settings.path_origins[setting.first] = text(place, "=", value.shown());
}

void resolve_paths(Settings& settings, const std::string& deck_name,
                   const std::vector<Override>& overrides, DeckUse use) {
  const std::filesystem::path folder = std::filesystem::path(deck_name).parent_path();
  const bool from_folder = settings.runtime.paths_from != PathsFrom::working_directory;
  std::set<std::string> overridden;
  for (const Override& setting : overrides) overridden.insert(setting.first);
  for (const Section& section : sections()) {
    for (const Key& key : section.keys) {
      if (!key.change_paths) continue;
      std::vector<std::string> paths;
      key.change_paths(settings, [&](const std::string& path) { paths.push_back(path); });
      if (paths.empty()) continue;
      const std::string name = section.name + "." + key.name;
      const bool is_from_folder = from_folder && overridden.count(name) == 0;
      std::string& origin = settings.path_origins[name];
      if (origin.empty())
        origin = text(deck_name, ": ", name, " = ", key.get(settings).shown(), ", the default");
      if (key.is_written && use == DeckUse::training)
        require_expanded(origin, paths[0], overridden.count(name) == 0 ? folder.string() : "");
      const auto is_relative = [](const std::string& path) {
        return std::filesystem::path(path).is_relative();
      };
      if (std::any_of(paths.begin(), paths.end(), is_relative))
        origin += is_from_folder ? ", relative to the deck's folder"
                                 : ", relative to the working directory";
      const auto has_tilde = [](const std::string& path) { return path[0] == '~'; };
      if (std::any_of(paths.begin(), paths.end(), has_tilde)) origin += ", '~' not expanded";
      if (!is_from_folder || folder.empty()) continue;
      // If `path` is absolute, folder / path is `path`.
      key.change_paths(
          settings, [&](std::string& path) { path = (folder / path).lexically_normal().string(); });
    }
  }
}

/// Returns the default hidden width of the MLP: 4 width without a gate; gated ones have the same
/// number of parameters (Shazeer 2020), rounded up to a multiple of 64.
std::int64_t default_ffn_width(const model::DecoderSettings& model) {
  if (!math::is_gated(model.activation)) return 4 * model.width;
  return (8 * model.width + 191) / 192 * 64;
}

void resolve_sizes(Settings& settings) {
  model::DecoderSettings& model = settings.model;
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  // A head width that equals the default counts as not set, so that both decks describe the same
  // model.
  if (model.head_dim * model.heads == model.width) model.head_dim = 0;
  if (model.ffn_width == 0) model.ffn_width = default_ffn_width(model);
  if (model.experts.exist() && model.experts.width == 0) model.experts.width = model.ffn_width;
}

std::string absolute_path(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

/// Returns the settings of a deck whose model is that of a config.json in the folder that
/// `settings`, made by it, name. `apply_to` applies the deck to settings.
template <class Apply>
Settings with_model_from(const Settings& settings, const Apply& apply_to) {
  const std::string path = checkpoint::huggingface_config_next_to(settings.model_from);
  require(!path.empty(), path_origin(settings, "model.from"), ": no config.json in ",
          Value::of(absolute_path(settings.model_from)).shown(),
          "; expected a folder of a model, as transformers saves it");
  const checkpoint::HuggingFaceConfig config = checkpoint::load_huggingface_config(path);
  Settings start = starting_settings();
  start.model = config.model;
  if (config.model.positions == model::Positions::learned)
    start.model.max_positions = config.positions;
  Settings made = apply_to(start);
  made.model_folder = absolute_path(std::exchange(made.model_from, ""));
  resolve_sizes(made);
  checkpoint::require_computed(config, made.training.sequence_length);
  checkpoint::require_same_model(config, made.model, made.training.sequence_length);
  return made;
}

bool is_plain_word(const std::string& text) {
  return text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == std::string::npos &&
         !text.empty() && text[0] >= 'a' && parse_scalar(text).kind == Value::Kind::text;
}

std::string write_value(const Value& value) {
  if (value.kind != Value::Kind::text) return value.shown();
  return is_plain_word(value.text) ? value.text : quoted(value.text);
}

/// Appends a comment to `line`, in `column` or later; a long one continues on the next lines.
std::string with_comment(std::string line, std::size_t column, const std::string& comment) {
  constexpr std::size_t longest = 100;
  std::string out;
  line.resize(std::max(line.size() + 2, column), ' ');
  line += '#';
  std::istringstream words(comment);
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > longest) {
      out += line + '\n';
      line.assign(column, ' ');
      line += '#';
    }
    line += ' ' + word;
  }
  return out + line + '\n';
}

std::string write_key(const Key& key, const Settings& settings) {
  return with_comment("    " + key.name + ": " + write_value(key.get(settings)), 36,
                      key.meaning + (key.limits.empty() ? "" : " (" + key.limits + ")"));
}

}  // namespace

Override parse_override(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  require(equals != std::string::npos, "--set ", argument,
          ": expected section.key=value, found no '='");
  const std::string key = argument.substr(0, equals);
  const std::size_t dot = key.find('.');
  require(dot != std::string::npos && dot > 0 && dot + 1 < key.size(), "--set ", argument,
          ": expected section.key=value",
          dot == std::string::npos && !key.empty() ? suggest_section(key) : "");
  return {key, argument.substr(equals + 1)};
}

Settings read_settings(const std::string& deck_text, const std::string& name,
                       const std::vector<Override>& overrides, DeckUse use) {
  const std::vector<DeckSection> deck = read_deck(deck_text, name, ends_in_xml(name));
  const auto apply_to = [&](Settings settings) {
    for (const DeckSection& section : deck) apply_section(settings, section, name);
    for (const Override& setting : overrides) apply_override(settings, setting);
    resolve_paths(settings, name, overrides, use);
    return settings;
  };
  Settings settings = apply_to(starting_settings());
  if (!settings.model_from.empty()) settings = with_model_from(settings, apply_to);
  resolve_sizes(settings);
  check_consistency(settings, name);
  // Decks, manifests and HDF5 texts, which hold paths, are UTF-8.
  if (use == DeckUse::training) with_absolute_paths(settings);
  if (use == DeckUse::training) check_data(settings, name);
  return settings;
}

std::string write_deck(const Settings& settings) {
  std::string out = "ostrakon:\n";
  for (const Section& section : sections()) {
    const std::string head = "  " + section.name + ":";
    out += with_comment(head, head.size() + 2, section.meaning);
    for (const Key& key : section.keys) out += write_key(key, settings);
  }
  return out;
}

std::string write_short_deck(const Settings& settings, const std::vector<std::string>& head) {
  const Settings defaults = starting_settings();
  std::string out;
  for (const std::string& line : head) out += line.empty() ? "#\n" : "# " + line + "\n";
  out += "ostrakon:\n";
  for (const Section& section : sections()) {
    std::string changed;
    for (const Key& key : section.keys)
      if (key.get(settings).shown() != key.get(defaults).shown() ||
          settings.given.count(section.name + "." + key.name) > 0)
        changed += write_key(key, settings);
    if (!changed.empty()) out += "  " + section.name + ":\n" + changed;
  }
  return out;
}

std::string default_deck() {
  const std::string deck = "ostrakon:\n  data:\n    path: tokens.h5\n";
  return "# Every key of a deck, with its default. Leave out what you don't change. data.path "
         "has no\n"
         "# default: tokens.h5 is an example. Relative paths: see runtime.paths_from.\n" +
         write_deck(read_settings(deck, "defaults", {}));
}

std::string path_origin(const Settings& settings, const std::string& key) {
  const auto known = settings.path_origins.find(key);
  return known == settings.path_origins.end() ? key : known->second;
}

namespace {

/// Calls `change` for each path that is set, with its key.
template <class Change>
Settings with_paths(Settings settings, const Change& change) {
  for (const Section& section : sections())
    for (const Key& key : section.keys)
      if (key.change_paths)
        key.change_paths(settings,
                         [&](std::string& path) { change(path, section.name + "." + key.name); });
  return settings;
}

}  // namespace

Settings with_absolute_paths(Settings settings) {
  return with_paths(settings, [&](std::string& path, const std::string& key) {
    path = std::filesystem::absolute(path).lexically_normal().string();
    require_utf8(path_origin(settings, key), path);
  });
}

Settings with_paths_from(Settings settings, const std::string& folder) {
  if (settings.runtime.paths_from == PathsFrom::working_directory) return settings;
  namespace fs = std::filesystem;
  const fs::path from = fs::absolute(folder.empty() ? "." : folder).lexically_normal();
  return with_paths(std::move(settings), [&](std::string& path, const std::string&) {
    if (fs::path(path).is_relative())
      path = fs::absolute(path).lexically_normal().lexically_relative(from).string();
  });
}

}  // namespace ostrakon::config
