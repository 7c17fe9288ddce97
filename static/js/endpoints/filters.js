// form[data-filters] is sent when a choice is made, and when typing pauses or Enter is pressed.

for (const form of document.querySelectorAll("form[data-filters]")) {
  form.addEventListener("change", (event) => {
    if (event.target.matches("select, input[type=checkbox]")) form.requestSubmit();
  });
  // Empty fields stay out of the URL.
  form.addEventListener("formdata", (event) => {
    for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
  });
}
