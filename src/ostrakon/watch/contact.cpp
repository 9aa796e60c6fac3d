// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/watch/contact.hpp>

#include <ostrakon/base/text.hpp>
#include <sstream>

namespace ostrakon::watch {

std::string Contact::to_text() const {
  std::string all = text(token, ' ', rank_in_plans, ' ', host, ' ', address.port);
  for (const std::string& one : address.hosts) all += " " + one;
  return all + "\n" + trouble;
}

Contact Contact::of_text(const std::string& text) {
  Contact contact;
  std::istringstream in(text);
  in >> contact.token >> contact.rank_in_plans >> contact.host >> contact.address.port;
  for (std::string one; in.peek() != '\n' && in >> one;) contact.address.hosts.push_back(one);
  in.ignore();
  std::getline(in, contact.trouble);
  return contact;
}

}  // namespace ostrakon::watch
