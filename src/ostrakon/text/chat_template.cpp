// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/chat_template.hpp>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/input.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/jinja/evaluate.hpp>
#include <ostrakon/text/jinja/parser.hpp>
#include <ostrakon/text/jinja/text.hpp>

namespace ostrakon::texts {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Files that are larger are no templates.
constexpr std::size_t most_template_bytes = std::size_t{16} << 20;

bool text_begins_with(const std::string& text, const std::string& begin) {
  return text.compare(0, begin.size(), begin) == 0;
}

OrderedJson read_template_json(const std::string& path) {
  const OrderedJson json = OrderedJson::parse(read_text(path, most_template_bytes), nullptr, false);
  require(json.is_object(), "'", path, "' is no JSON object");
  return json;
}

/// Returns the tokenizer_config.json of a folder; no keys if there is none.
OrderedJson tokenizer_config(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json";
  return is_missing(path) ? OrderedJson::object() : read_template_json(path);
}

/// Returns the message as transformers hands it to a template: without keys that are null, and with
/// what an assistant thought under the two names that templates read.
OrderedJson as_template_reads(const OrderedJson& message) {
  OrderedJson kept = OrderedJson::object();
  for (const auto& entry : message.items())
    if (!entry.value().is_null()) kept[entry.key()] = entry.value();
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!kept.contains(name)) continue;
    OrderedJson result = OrderedJson::object();
    result["thinking"] = kept[name];
    for (const auto& entry : kept.items()) result[entry.key()] = entry.value();
    result["reasoning_content"] = kept[name];
    return result;
  }
  return kept;
}

/// Returns the text of a token in tokenizer_config.json, a string or an object; empty for another
/// value.
std::optional<std::string> token_text(const OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string())
    return value["content"].get<std::string>();
  return std::nullopt;
}

/// Returns the names of special tokens, as transformers gives them to templates.
OrderedJson special_tokens(const OrderedJson& config) {
  OrderedJson tokens = OrderedJson::object();
  for (const auto& entry : config.items()) {
    const std::string& key = entry.key();
    const bool names_token = key.size() > 6 && key.compare(key.size() - 6, 6, "_token") == 0;
    if (!names_token) continue;
    if (const auto token = token_text(entry.value())) tokens[key] = *token;
  }
  if (config.contains("extra_special_tokens") && config["extra_special_tokens"].is_object())
    for (const auto& entry : config["extra_special_tokens"].items())
      if (const auto token = token_text(entry.value())) tokens[entry.key()] = *token;
  return tokens;
}

/// The sources of a folder's templates by their names, and where they were found.
struct TemplateSources {
  std::map<std::string, std::string> by_name;
  std::string path;
};

void add_sources(const OrderedJson& config, const std::string& path, TemplateSources& sources) {
  if (!config.contains("chat_template") || config["chat_template"].is_null()) return;
  const OrderedJson& value = config["chat_template"];
  sources.path = path;
  if (value.is_string()) {
    sources.by_name["default"] = value.get<std::string>();
    return;
  }
  const auto is_text = [](const OrderedJson& entry, const char* key) {
    return entry.is_object() && entry.contains(key) && entry[key].is_string();
  };
  require(value.is_array() && std::all_of(value.begin(), value.end(),
                                          [&](const OrderedJson& entry) {
                                            return is_text(entry, "name") &&
                                                   is_text(entry, "template");
                                          }),
          "'", path, "': chat_template is neither a string nor a list of names and templates");
  for (const OrderedJson& entry : value)
    sources.by_name[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
}

TemplateSources find_sources(const std::string& folder, const OrderedJson& config) {
  TemplateSources sources;
  const std::string file = folder + "/chat_template.jinja";
  if (!is_missing(file)) {
    sources.path = file;
    sources.by_name["default"] = read_text(file, most_template_bytes);
    const std::string with_tools = folder + "/additional_chat_templates/tool_use.jinja";
    if (!is_missing(with_tools))
      sources.by_name["tool_use"] = read_text(with_tools, most_template_bytes);
    return sources;
  }
  add_sources(config, folder + "/tokenizer_config.json", sources);
  const std::string json = folder + "/chat_template.json";
  if (sources.by_name.empty() && !is_missing(json))
    add_sources(read_template_json(json), json, sources);
  require(!sources.by_name.empty(), "'", folder, "' has no chat template: neither ",
          "chat_template.jinja nor `chat_template` in tokenizer_config.json or chat_template.json");
  require(sources.by_name.count("default") > 0, "'", sources.path,
          "' has chat templates, but none with the name 'default'");
  return sources;
}

std::size_t common_ending(const std::string& a, const std::string& b) {
  const auto ends = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return static_cast<std::size_t>(ends.first - a.rbegin());
}

}  // namespace

struct ChatTemplate::Program {
  std::string name;
  jinja::Tree tree;
  std::optional<jinja::Tree> with_tools;  ///< for chats with tools, where the model has two
  OrderedJson variables;

  const jinja::Tree& tree_for(const OrderedJson& more) const {
    const bool has_tools = more.contains("tools") && !more["tools"].is_null();
    return with_tools && has_tools ? *with_tools : tree;
  }

  /// What a template reads of one chat, but for add_generation_prompt.
  struct Chat {
    jinja::Values messages;
    std::vector<std::pair<jinja::Value, jinja::Value>> variables;
    const jinja::Tree* tree;
  };

  /// Calls a function that makes values. What is wrong with these becomes an Error with the name of
  /// the template.
  template <class Make>
  auto named(const Make& make) const {
    try {
      return make();
    } catch (const jinja::Problem& problem) {
      throw Error(ostrakon::text(name, ": ", problem.what()));
    }
  }

  jinja::Value value(const OrderedJson& json) const {
    return named([&] { return jinja::from_json(json); });
  }

  Chat prepare(const OrderedJson& messages, const OrderedJson& more) const {
    named([&] {
      jinja::check_depth(messages);
      jinja::check_depth(more);
    });
    require(messages.is_array(), name, ": the messages are no list, but ", shown(messages.dump()));
    require(more.is_object(), name, ": the further variables are no JSON object");
    Chat chat;
    chat.tree = &tree_for(more);
    for (const OrderedJson& message : messages) {
      require(message.is_object(), name, ": message ", chat.messages.size() + 1, " is ",
              shown(message.dump()), "; expected an object with 'role' and 'content'");
      chat.messages.push_back(value(as_template_reads(message)));
    }
    OrderedJson all = variables;
    all["tools"] = nullptr;
    all["documents"] = nullptr;
    for (const auto& entry : more.items()) {
      require(entry.key() != "messages" && entry.key() != "add_generation_prompt", name,
              ": the variable '", entry.key(), "' is the chat's own");
      all[entry.key()] = entry.value();
    }
    chat.variables = value(all).dict().entries;
    return chat;
  }

  /// Renders the first `count` messages.
  jinja::Rendered render(const Chat& chat, std::size_t count, bool with_prompt) const {
    const jinja::Value all = named([&] {
      auto entries = chat.variables;
      const auto end = chat.messages.begin() + static_cast<std::ptrdiff_t>(count);
      entries.emplace_back(jinja::Value::string("messages"),
                           jinja::Value::list({chat.messages.begin(), end}));
      entries.emplace_back(jinja::Value::string("add_generation_prompt"),
                           jinja::Value::boolean(with_prompt));
      return jinja::Value::dict(std::move(entries));
    });
    return jinja::render(*chat.tree, all, name);
  }

  /// Returns where the turn of message `at` ends in `whole`, the text of all messages, although
  /// `alone`, the text up to that turn, does not begin it: the template writes an assistant's last
  /// turn in another way than those before, such as with what it thought. Then what follows the
  /// message's last letter in `alone` has to follow it in `whole`, too. Where that letter is shows
  /// when one more is put behind it.
  std::size_t end_of_turn(const OrderedJson& messages, std::size_t at, const std::string& whole,
                          const std::string& alone, const Chat& chat) const {
    const auto refuse = [&] {
      throw Error(ostrakon::text(
          name, ": where the text of message ", at + 1, " of ", messages.size(),
          " ends can't be found, as the template writes it in another way when others follow; "
          "put blocks '{% generation %}' around what an assistant writes"));
    };
    const OrderedJson given = messages[at].value("content", OrderedJson());
    if (!given.is_null() && !given.is_string()) refuse();
    const auto content = given.is_null() ? std::string() : given.get<std::string>();
    const std::string kept(jinja::strip(content, {}, jinja::Side::right));
    const std::string letter = !kept.empty() && kept.back() == 'o' ? "e" : "o";
    OrderedJson message = messages[at];
    message["content"] = kept + letter + content.substr(kept.size());
    Chat changed = chat;
    changed.messages[at] = value(as_template_reads(message));
    const auto end_of_letter = [&](const std::string& text, const std::string& with_letter) {
      const std::size_t end = text.size() - common_ending(text, with_letter);
      if (std::string(text).insert(end, letter) != with_letter) refuse();
      return end;
    };
    const std::size_t end_alone = end_of_letter(alone, render(changed, at + 1, false).text);
    const std::size_t end =
        end_of_letter(whole, render(changed, changed.messages.size(), false).text);
    const std::string rest = alone.substr(end_alone);
    if (whole.compare(end, rest.size(), rest) != 0) refuse();
    return end + rest.size();
  }
};

ChatTemplate::ChatTemplate(const std::string& source, const std::string& name,
                           const OrderedJson& variables)
    : program_(std::make_unique<Program>()) {
  require(variables.is_object(), name, ": the variables of a template are no JSON object");
  program_->name = name;
  program_->tree = jinja::parse(source, name);
  program_->variables = variables;
}

ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::of_folder(const std::string& folder) {
  const OrderedJson config = tokenizer_config(folder);
  const TemplateSources sources = find_sources(folder, config);
  ChatTemplate result(sources.by_name.at("default"), sources.path, special_tokens(config));
  const auto with_tools = sources.by_name.find("tool_use");
  if (with_tools != sources.by_name.end())
    result.program_->with_tools = jinja::parse(with_tools->second, sources.path + " (tool_use)");
  return result;
}

ChatTemplate ChatTemplate::of_file(const std::string& path, const std::string& folder) {
  return {read_text(path, most_template_bytes), path, special_tokens(tokenizer_config(folder))};
}

std::string ChatTemplate::render(const OrderedJson& messages, bool with_prompt,
                                 const OrderedJson& more) const {
  require(!messages.empty(), program_->name, ": a chat has no messages");
  return program_->render(program_->prepare(messages, more), messages.size(), with_prompt).text;
}

ChatText ChatTemplate::render_for_training(const OrderedJson& messages,
                                           const OrderedJson& more) const {
  require(!messages.empty(), program_->name, ": a chat has no messages");
  const Program::Chat chat = program_->prepare(messages, more);
  jinja::Rendered rendered = program_->render(chat, messages.size(), false);
  ChatText result;
  result.text = std::move(rendered.text);
  const jinja::Tree& tree = *chat.tree;
  require(tree.kept_generation == 0, program_->name, ":", tree.kept_generation,
          ": where a block 'generation' inside of a macro, or of a block 'set', 'filter' or "
          "'generation', stands in the text is not known");
  if (tree.has_generation) {
    for (const auto& [begin, end] : rendered.generated) result.assistant.push_back({begin, end});
    return result;
  }
  for (std::size_t at = 0; at < messages.size(); ++at) {
    if (messages[at].value("role", OrderedJson()) != "assistant") continue;
    const std::string before = program_->render(chat, at, true).text;
    require(text_begins_with(result.text, before), program_->name,
            ": the text that asks for message ", at + 1, " of ", messages.size(),
            " does not begin the text of the chat; put blocks '{% generation %}' around what an "
            "assistant writes");
    const std::string alone = program_->render(chat, at + 1, false).text;
    const std::size_t end = text_begins_with(result.text, alone)
                                ? alone.size()
                                : program_->end_of_turn(messages, at, result.text, alone, chat);
    require(end >= before.size(), program_->name, ": message ", at + 1,
            " of an assistant ends before it begins");
    result.assistant.push_back({before.size(), end});
  }
  return result;
}

}  // namespace ostrakon::texts
