package v1

// PausedAnnotation is our own: an object that has it, with any value, is left alone by every controller until the
// annotation is removed. An object that is being deleted is finished all the same.
const PausedAnnotation = "chancery.dev/paused"
