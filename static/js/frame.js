// What every page has; each behaviour is a module of its own, bound by data- attributes.
import "./confirm.js";
import "./copy.js";
import "./dialogs.js";
import "./focus.js";
import "./forms.js";
import "./live.js";
import "./shortcuts.js";
import "./state.js";
import "./times.js";
import "./toasts.js";

document.documentElement.dataset.script = "";
