#include "fleet/shape.h"

#include <utility>

#include "base/json.h"
#include "fleet/recipe.h"

namespace caisson::fleet {
namespace {

constexpr const char* kNoImage = "none";  // what must be there is

}  // namespace

Result<std::string> encode_shape(const Shape& shape) {
  json::Value value = json::Value::object();
  Recipe without_image = shape.recipe;
  without_image.image = kNoImage;
  TRY_ASSIGN(json::Value recipe, recipe_json(without_image));
  value.set("recipe", std::move(recipe));
  value.set("start", start_json(shape.start));
  return json::serialize(value);
}

Result<Shape> decode_shape(std::string_view text) {
  TRY_ASSIGN(const json::Value value, json::parse(text));
  const json::Value* recipe = value.find("recipe");
  const json::Value* start = value.find("start");
  if (recipe == nullptr || start == nullptr)
    return fail(Error::invalid("shape: found no recipe or no start"));
  Shape shape;
  TRY_ASSIGN(shape.recipe, parse_recipe(*recipe));
  TRY_ASSIGN(shape.start, parse_start(*start));
  return shape;
}

}  // namespace caisson::fleet
